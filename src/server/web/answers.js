// The answers that are being written: at most one for each conversation, whether the conversation is on the page or
// not. The server keeps an answer under a name, so an answer goes on after a lost connection or a reload of the page.
// Meanwhile its message has `run`: {name, content, reasoning}, the name and what the message had before.
import * as api from '/api.js';
import {addCalls} from '/calls.js';
import {fit, fixedBytes} from '/context.js';
import * as store from '/store.js';
import * as tree from '/tree.js';

const SAVE_MS = 1000, RETRY_MS = [300, 1000, 3000, 9000], ELSEWHERE_MS = 5000, BEAT_MS = 2000;
const running = new Map();    // conversation's id -> {controller, message, chat, saved}
const elsewhere = new Map();  // conversation's id -> when another tab last wrote an answer in it
let page;  // {begun(chat, message), drawn(message), progressed(message, text), ended(chat, message), keep(chat, writing)}

export function wire(given) {
  page = given;
}

export const of = chat => running.get(chat.id) ?? null;
export const isWritten = id => running.has(id) || isElsewhere(id);
export const isElsewhere = id => Date.now() - (elsewhere.get(id) ?? 0) < ELSEWHERE_MS;
export const isMine = name => [...running.values()].some(one => one.message.run?.name === name);
export const all = () => [...running.values()];

// Another tab has stored the conversation.
export function note(id, writing) {
  writing ? elsewhere.set(id, Date.now()) : elsewhere.delete(id);
}

function randomName() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map(x => x.toString(16).padStart(2, '0')).join('');
}

// ---- writing ----

// Streams an answer into an assistant message, which may have text already. `partial` marks an incomplete answer. It
// stays set after a stop, a lost connection or the token limit.
export function start(chat, message, model) {
  const shown = tree.path(chat), begun = message.content ? message : null;
  const before = shown.slice(0, shown.indexOf(message));
  message.run = {name: randomName(), content: message.content, reasoning: message.reasoning};
  message.partial = true;
  for (const name of ['error', 'stats', 'isFull']) delete message[name];
  return write(chat, message, async mine => {
    const {body, omitted} = await fit(chat, before, begun, model, mine.controller.signal);
    omitted ? message.omitted = omitted : delete message.omitted;
    await page.keep(chat, true);  // with the name, for a reload before the first token
    Object.assign(mine, {model: body.model, fixed: fixedBytes(body)});
    return ask(mine, body);
  });
}

// Goes on with an answer that was being written when the page was closed.
async function resume(chat, message) {
  if (await store.isElsewhere(message.run.name)) return note(chat.id, true);
  if (of(chat) || !message.run) return;
  write(chat, message, mine => attach(mine, null, true));
}

// Goes on with all answers of all conversations.
export function resumeAll() {
  for (const chat of store.all())
    for (const message of chat.messages) if (message.partial && message.run) resume(chat, message);
}

async function write(chat, message, work) {
  const mine = {controller: new AbortController(), message, chat, saved: -SAVE_MS}, {run} = message;
  const beat = setInterval(() => running.get(chat.id) === mine && store.tellWriting(chat.id), BEAT_MS);
  running.set(chat.id, mine);
  page.begun(chat, message);
  try {
    const stats = await work(mine);
    if (stats) {
      message.stats = {...stats, model: mine.model, fixed: mine.fixed};
      if (stats.finish && stats.finish !== 'length') delete message.partial;
      if (!stats.finish) message.error = 'The answer was cut off.';
    }
  } catch (error) {
    if (error.name !== 'AbortError') message.error = error.message;
    if (error.isFull) message.isFull = true;
  }
  clearInterval(beat);
  if (running.get(chat.id) === mine) running.delete(chat.id);
  if (mine.removed) return;
  if (message.run === run && !mine.left) delete message.run;
  page.ended(chat, message);
}

// The answer's stream, read to its end. A connection that breaks is made again.
async function ask(mine, body) {
  const {name} = mine.message.run, {signal} = mine.controller;
  let response;
  try {
    response = await api.begin(body, name, signal);
    return await receive(mine, response);
  } catch (error) {
    if (error instanceof api.ServerError || error.name === 'AbortError') throw error;
    return attach(mine, response || mine.message.content ? RETRY_MS : [0]);
  }
}

// Gets the answer again from its beginning. waits: ms before each attempt; null: one attempt at once, for an answer that
// may be gone.
async function attach(mine, waits, wasClosed = false) {
  const {message} = mine, {signal} = mine.controller;
  let isReached = false;
  for (const [i, ms] of (waits ?? [0]).entries()) {
    if (i > 0 || ms > 0) page.progressed(message, 'connecting again …');
    await new Promise(resolve => setTimeout(resolve, ms));
    signal.throwIfAborted();
    try {
      const response = await api.again(message.run.name, signal);
      Object.assign(message, {content: message.run.content, reasoning: message.run.reasoning});
      for (const name of ['tool_calls', 'error']) delete message[name];
      return await receive(mine, response);
    } catch (error) {
      if (error.name === 'AbortError') throw error;
      if (error instanceof api.ServerError && error.status === 404) {
        if (wasClosed) return null;  // what there is of the answer stays
        isReached = true;
        break;
      }
      if (error instanceof api.ServerError) throw error;
    }
  }
  if (wasClosed) mine.left = true;  // the server may answer after the next reload
  if (message.content || message.reasoning) throw new Error('The answer broke off: the connection to the server was lost.');
  throw new Error(isReached ? 'The connection was lost before the answer began. Try again.' : 'The server cannot be reached.');
}

function receive(mine, response) {
  const {message, chat} = mine;
  return api.read(response, ({content, reasoning, calls}) => {
    message.content += content;
    addCalls(message, calls);
    if (reasoning) message.reasoning = (message.reasoning || '') + reasoning;
    const now = performance.now();
    if (now - mine.saved >= SAVE_MS) {
      page.keep(chat, true);
      mine.saved = now;
    }
    page.drawn(message);
  }, ({total, processed}) => {
    mine.promptTokens = total;
    page.progressed(message, processed < total ? `reading the prompt, ${Math.floor(100 * processed / total)} %` : '');
  });
}

// ---- stopping ----

// Ends the conversation's answer here and in the server. `removed`: the conversation is gone, so nothing is stored.
export function stop(chat, removed = false) {
  const mine = of(chat);
  if (!mine) return;
  mine.removed = removed;
  running.delete(chat.id);
  mine.controller.abort();
  api.end(mine.message.run.name);
}
