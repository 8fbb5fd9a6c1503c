// Conversations and settings, stored in this browser (localStorage). A conversation is {id, title, created, changed,
// messages, head}. A message is {role, content, files?, reasoning?, tool_calls?, tool_call_id?, stats?, partial?,
// parent?}. tree.js explains `head` and `parent`. Each conversation has its own key, so a change writes only one
// conversation.
import {areCalls} from '/calls.js';
import {areFiles} from '/files.js';
import {isTree} from '/tree.js';

const PREFIX = 'ingot.chat.', SETTINGS = 'ingot.settings';

function read(key, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

export const keyOf = id => PREFIX + id;
export const find = id => read(keyOf(id), null);

export function all() {
  const found = [];
  for (let i = 0; i < localStorage.length; ++i) {
    const key = localStorage.key(i);
    const chat = key.startsWith(PREFIX) && read(key, null);
    if (chat && Array.isArray(chat.messages)) found.push(chat);
  }
  return found.sort((a, b) => b.changed - a.changed);
}

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

// Returns false if the browser's store is full.
export function save(chat) {
  chat.changed = Date.now();
  try {
    localStorage.setItem(keyOf(chat.id), JSON.stringify(chat));
    return true;
  } catch {
    return false;
  }
}

export function remove(id) {
  localStorage.removeItem(keyOf(id));
}

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

const isMessage = m => m && typeof m.role === 'string' && typeof m.content === 'string' && areCalls(m.tool_calls ?? []) &&
                       areFiles(m.files ?? []);
const isChat = chat => chat && Array.isArray(chat.messages) && chat.messages.every(isMessage) && isTree(chat);

// Imports the conversations of an exported file. If a conversation with the same id but different messages exists, it
// stays, and the imported one gets a new id. Returns {taken, known}: the numbers of new and of existing conversations.
// Throws if the file has no conversations.
export function take(text) {
  const given = JSON.parse(text);
  const chats = Array.isArray(given) ? given : given.conversations;
  if (!Array.isArray(chats)) throw new Error('this file has no conversations');
  const count = {taken: 0, known: 0};
  for (const chat of chats.filter(isChat)) {
    const {messages, head} = chat, id = typeof chat.id === 'string' && /^[\w-]{1,64}$/.test(chat.id) ? chat.id : null;
    const here = id && find(id);
    if (here && JSON.stringify(here.messages) === JSON.stringify(messages)) {
      ++count.known;
    } else if (save({...fresh(), ...(id && !here && {id}), title: String(chat.title || 'Imported').slice(0, 200), messages, head})) {
      ++count.taken;
    }
  }
  return count;
}

export const settings = {
  values: {key: '', system: '', theme: 'auto', temperature: '', top_p: '', top_k: '', min_p: '', max_tokens: '', seed: '',
           repetition_penalty: '', model: '', tools: '', ...read(SETTINGS, {})},
  set(name, value) {
    this.values[name] = value;
    try {
      localStorage.setItem(SETTINGS, JSON.stringify(this.values));
    } catch { /* the store is full: the settings last for this page */ }
  },
};
