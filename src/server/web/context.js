// The model's context: how much of it a conversation takes, and which turns are left out when it is full. Counts come
// from the server. An answer's `omitted` is the number of oldest turns that the model did not see.
import * as api from '/api.js';
import {requestBody, turnsOf} from '/request.js';
import {settings} from '/settings_store.js';
import * as tree from '/tree.js';

const MAX_ANSWER = 1024;  // tokens kept free for an answer, but at most a quarter of the context
const NEAR = 8;           // an answer that ends with fewer tokens left has filled the context
const OF_TEMPLATE = 1024, OF_TURN = 64;  // more tokens than a template writes around all messages, and around one turn

const bytes = text => new TextEncoder().encode(text).length;
const usedBy = ({usage}) => usage.prompt_tokens + usage.completion_tokens;

// The size of what every request of the conversation begins with.
export const fixedBytes = ({messages, tools}) => bytes(JSON.stringify([messages.filter(m => m.role === 'system'), tools ?? null]));

// The room that an answer should have, in tokens.
function room(limit) {
  const wanted = Number(settings.values.max_tokens) || MAX_ANSWER;
  return Math.min(wanted, Math.floor(limit / 4));
}

// An upper limit of the tokens of a request, without asking the server: a token has at least one byte.
function mostTokens(body, messages) {
  const last = messages.findLast(m => m.role === 'assistant' && m.stats?.usage);
  const isNext = last && !last.omitted && messages.indexOf(last) === messages.length - 2 && last.stats.model === body.model &&
                 last.stats.fixed === fixedBytes(body);
  const isText = typeof body.messages.at(-1).content === 'string';  // only the server knows the tokens of images
  if (isNext && isText && !body.continue_final_message) return usedBy(last.stats) + bytes(body.messages.at(-1).content) + OF_TURN;
  if (body.messages.some(m => Array.isArray(m.content))) return Infinity;
  return bytes(JSON.stringify([body.messages, body.tools ?? null])) + OF_TEMPLATE;
}

// The request for the next answer: {body, omitted}. Leaves out the oldest turns if the context has no room for an answer
// after all of them, but never the system prompt or the last turn. Throws Error with a message for people if the last
// turn alone does not fit.
export async function fit(chat, messages, begun, model, signal) {
  const turns = turnsOf(messages), limit = model?.max_model_len, last = turns.length - 1;
  const bodyFrom = first => requestBody(turns.slice(first), begun, chat, model);
  const before = messages.findLast(m => m.role === 'assistant' && m.stats);  // the same model goes on where it left off
  let first = Math.min(before?.stats.model === model?.id ? before?.omitted ?? 0 : 0, Math.max(0, last));
  let body = bodyFrom(first);
  if (!limit || mostTokens(body, messages) <= limit - room(limit)) return {body, omitted: first};
  let count = await api.count(body, signal);
  if (count > limit - room(limit)) {
    // Leaves out a quarter more, so that the next questions find the same beginning in the server's cache.
    const most = limit - room(limit) - Math.floor(limit / 4);
    let low = first, high = last;  // the first turn that makes it fit is in (low, high]
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      await api.count(bodyFrom(middle), signal) <= most ? high = middle : low = middle;
    }
    first = Math.max(high, 0);
    body = bodyFrom(first);
    count = await api.count(body, signal);
  }
  if (count >= limit) {
    const error = new Error(`Even without earlier turns, the request has ${count.toLocaleString('en')} tokens, but the model’s context has only ` +
      `${limit.toLocaleString('en')}. ` +
      'Shorten the question or its files, or choose a model with a longer context.');
    throw Object.assign(error, {isFull: true});
  }
  return {body, omitted: first};
}

// The tokens in use after the newest answer that is shown, or null if the server has not said.
export function used(chat) {
  const answered = tree.path(chat).findLast(m => m.stats?.usage);
  return answered ? usedBy(answered.stats) : null;
}

// The first message that the model saw for the newest answer, and the number of turns before it; null if it saw all.
export function firstSeen(chat) {
  const shown = tree.path(chat), omitted = shown.findLast(m => m.role === 'assistant')?.omitted;
  const turns = omitted ? turnsOf(shown) : [];
  return omitted && turns[omitted] ? {message: turns[omitted][0], omitted} : null;
}

// Whether more of the answer would fit. If the context is full, the oldest turns can make room, unless the answer's own
// turn has filled the context alone.
export function canGoOn(chat, message, limit) {
  if (message.isFull) return false;
  if (!message.stats?.usage || !limit || usedBy(message.stats) < limit - NEAR) return true;
  return turnsOf(tree.path(chat)).length - 1 > (message.omitted ?? 0);
}

// Shows the meter. node: its element. total: tokens, or null.
export function showMeter(node, total, limit) {
  node.hidden = total === null || !limit;
  if (node.hidden) return;
  const share = Math.min(1, total / limit), percent = Math.round(100 * share);
  const text = `${total.toLocaleString('en')} of ${limit.toLocaleString('en')} tokens`;
  node.setAttribute('aria-valuenow', percent);
  node.setAttribute('aria-valuetext', text);
  node.title = `The conversation takes ${text} of the model’s context. When it is full, the oldest turns are left out.`;
  node.classList.toggle('full', share >= .9);
  node.querySelector('.bar i').style.width = percent + '%';
  node.querySelector('.count').textContent = text;
}
