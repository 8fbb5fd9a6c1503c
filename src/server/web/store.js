// Conversations, stored in this browser's database. All conversations are also in memory: the functions that read them
// answer at once. A conversation is {id, title, created, changed, messages, head, system?, schema?}. A message is
// {role, content, files?, reasoning?, tool_calls?, tool_call_id?, stats?, partial?, run?, omitted?, parent?}. tree.js
// explains `head` and `parent`, answers.js `run`, and context.js `omitted`.
import {areCalls} from '/calls.js';
import * as database from '/database.js';
import {areFiles} from '/files.js';
import {isTree} from '/tree.js';

const OLD_PREFIX = 'ingot.chat.';  // earlier versions kept conversations in localStorage
const chats = new Map();           // id -> conversation
const channel = typeof BroadcastChannel === 'function' ? new BroadcastChannel('ingot') : null;  // to other tabs

export const find = id => chats.get(id) ?? null;
export const all = () => [...chats.values()].sort((a, b) => b.changed - a.changed);

export function fresh() {
  const now = Date.now();
  const id = now.toString(36) + Math.random().toString(36).slice(2, 8);
  return {id, title: 'New conversation', created: now, changed: now, messages: []};
}

// The title of a conversation that begins with this text: at most 60 characters, cut between words.
export function titleOf(text) {
  const line = text.replace(/\s+/g, ' ').trim();
  return line.length <= 60 ? line : line.slice(0, 60).replace(/ \S*$/, '') + '…';
}

// ---- reading and writing ----

function oldChats() {
  const found = [];
  try {
    for (let i = 0; i < localStorage.length; ++i) {
      const key = localStorage.key(i);
      if (!key.startsWith(OLD_PREFIX)) continue;
      try {
        const chat = JSON.parse(localStorage.getItem(key));
        if (isChat(chat) && typeof chat.id === 'string') found.push(mended(chat));
      } catch { /* not a conversation: it stays where it is */ }
    }
  } catch { /* this browser has no localStorage for the page */ }
  return found;
}

const reasonOf = error => error?.name === 'QuotaExceededError' ? 'its storage is full' : error?.message || String(error);

// Reads all conversations. Those of an earlier version move to the database, once. Resolves to null, or to a message
// for people if the browser refuses.
export async function load() {
  const old = oldChats();
  try {
    const stored = await database.readAll();
    stored.filter(isChat).forEach(chat => chats.set(chat.id, mended(chat)));
    const missing = old.filter(chat => !chats.has(chat.id));
    missing.forEach(chat => chats.set(chat.id, chat));
    if (missing.length) await database.write(missing);
    old.forEach(chat => localStorage.removeItem(OLD_PREFIX + chat.id));
    return null;
  } catch (error) {
    old.forEach(chat => chats.has(chat.id) || chats.set(chat.id, chat));
    return `This browser stores no conversations (${reasonOf(error)}). They last as long as this page: export them before you leave.`;
  }
}

// Resolves to null, or to the reason why the browser did not store the conversation. Its text stays in memory.
export async function save(chat, writing = false) {
  chat.changed = Date.now();
  chats.set(chat.id, chat);
  try {
    await database.write([chat]);
    channel?.postMessage({changed: chat.id, writing});
    return null;
  } catch (error) {
    return reasonOf(error);
  }
}

// Tells other tabs that this tab still writes an answer in the conversation, also while no text comes.
export function tellWriting(id) {
  channel?.postMessage({changed: id, writing: true});
}

export async function remove(...ids) {
  ids.forEach(id => chats.delete(id));
  try {
    await database.remove(ids);
    ids.forEach(id => channel?.postMessage({changed: id}));
    return null;
  } catch (error) {
    return reasonOf(error);
  }
}

// ---- other tabs ----

// Calls onChange(id, writing) when another tab has changed a conversation, and isMine(name) when it asks who writes the
// answer with this name.
export function watch(onChange, isMine) {
  channel?.addEventListener('message', async ({data}) => {
    if (data.asked && isMine(data.asked)) channel.postMessage({mine: data.asked});
    if (!data.changed) return;
    try {
      const stored = await database.readOne(data.changed);
      onChange(data.changed, stored && isChat(stored) ? stored : null, data.writing === true);
    } catch { /* the other tab's change is seen after a reload */ }
  });
}

// Puts what another tab has stored in place of what is in memory.
export function take(id, chat) {
  chat ? chats.set(id, chat) : chats.delete(id);
}

const ASK_MS = 200;

// Whether another tab receives the answer with this name.
export function isElsewhere(name) {
  if (!channel) return Promise.resolve(false);
  return new Promise(resolve => {
    const hear = ({data}) => data.mine === name && end(true);
    const end = found => {
      channel.removeEventListener('message', hear);
      clearTimeout(timer);
      resolve(found);
    };
    const timer = setTimeout(end, ASK_MS, false);
    channel.addEventListener('message', hear);
    channel.postMessage({asked: name});
  });
}

// ---- search, export and import ----

export function search(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return all().filter(chat => {
    const hay = (chat.title + '\n' + chat.messages.map(m => m.content).join('\n')).toLowerCase();
    return words.every(word => hay.includes(word));
  });
}

export function exported() {
  return JSON.stringify({format: 'ingot-conversations', version: 1, conversations: all()}, null, 1);
}

const isNumber = x => typeof x === 'number';
// An object of numbers, which may have objects of numbers if `inner` is set.
const areNumbers = (x, inner = false) => typeof x === 'object' && x !== null &&
  Object.values(x).every(v => v === null || isNumber(v) || (inner && areNumbers(v)));
const isUsage = x => areNumbers(x, true) && isNumber(x.prompt_tokens) && isNumber(x.completion_tokens);
const areStats = ({usage, timings}) => (usage == null || isUsage(usage)) && (timings == null || areNumbers(timings));
const isText = x => x === undefined || typeof x === 'string';
const isMessage = m => m && typeof m.role === 'string' && typeof m.content === 'string' && isText(m.reasoning) && isText(m.error) &&
                       areCalls(m.tool_calls ?? []) && areFiles(m.files ?? []);
const isChat = chat => chat && Array.isArray(chat.messages) && chat.messages.every(isMessage) && isTree(chat) &&
                       isText(chat.system) && isText(chat.schema);

// Figures are only shown, so a conversation whose figures are malformed stays, without them.
function mended(chat) {
  for (const message of chat.messages) {
    if (!areStats(message.stats ?? {})) delete message.stats;
    if (!isNumber(message.omitted ?? 0)) delete message.omitted;
  }
  return chat;
}

// Imports the conversations of an exported file. If a conversation with the same id but different messages exists, it
// stays, and the imported one gets a new id. Resolves to {taken, known, failed}: the numbers of new and of existing
// conversations, and the reason if the browser did not store them. Rejects if the file has no conversations.
export async function importText(text) {
  const given = JSON.parse(text);
  const list = Array.isArray(given) ? given : given?.conversations;
  if (!Array.isArray(list)) throw new Error('this file has no conversations');
  const count = {taken: 0, known: 0};
  const made = [];
  for (const chat of list.filter(isChat)) {
    const {messages, head, system, schema} = chat, id = typeof chat.id === 'string' && /^[\w-]{1,64}$/.test(chat.id) ? chat.id : null;
    const here = id && find(id);
    if (here && JSON.stringify(here.messages) === JSON.stringify(messages)) {
      ++count.known;
      continue;
    }
    const title = String(chat.title || 'Imported').slice(0, 200);
    mended({messages}).messages.forEach(message => delete message.run);  // nobody writes these answers
    const own = {...fresh(), ...(id && !here && {id}), title, messages, head, ...(system && {system}), ...(schema && {schema})};
    chats.set(own.id, own);
    made.push(own);
    ++count.taken;
  }
  try {
    await database.write(made);
  } catch (error) {
    count.failed = reasonOf(error);
  }
  return count;
}
