// The chat page: conversations on the left, messages on the right. The state is one conversation and at most one
// streaming answer. The page is rendered from this state.
import * as api from '/api.js';
import {addCalls} from '/calls.js';
import {make} from '/dom.js';
import {MessageNode} from '/message.js';
import {clearPrompt, wirePrompt} from '/prompt.js';
import {isLost, requestBody} from '/request.js';
import {loadModels, openSettings, setTheme, wireSettings} from '/settings.js';
import {setSide, showList, wireSide} from '/side.js';
import * as store from '/store.js';
import * as tree from '/tree.js';

const $ = id => document.getElementById(id);
const IDEAS = ['Tell me a story about a fox.', 'What is 7 + 5?', 'Write a short poem about the sea.', 'Explain photosynthesis to a child.'];
const SAVE_MS = 1000, TOAST_MS = 6000;

let chat = store.fresh();
let answer = null;      // {controller, message, chat} of the answer that is streaming
let nodes = new Map();  // message -> MessageNode, for the messages on the page
let follow = true;      // scroll to the newest line
let toast;

// Announces the text to screen readers. `seen`: also shows it.
function say(text, seen = false) {
  $('status').textContent = text;
  $('status').className = seen ? 'toast' : 'sr';
  clearTimeout(toast);
  if (seen) toast = setTimeout(() => $('status').className = 'sr', TOAST_MS);
}

function keep(one = chat) {
  if (store.save(one)) return;
  say('The browser’s storage is full, so this conversation is not saved. Export and delete other conversations.', true);
}

// ---- what is shown ----

function append(message) {
  const made = new MessageNode(message, page);
  nodes.set(message, made);
  $('messages').append(made.node);
}

function showTitle() {
  const begun = chat.messages.length > 0;
  $('hello').hidden = begun;
  $('title').textContent = chat.title;
  document.title = begun ? `${chat.title} – ingot` : 'ingot';
  showList();
}

function show() {
  nodes = new Map();
  $('messages').replaceChildren();
  tree.path(chat).filter(m => m.role !== 'tool').forEach(append);
  showTitle();
  toEnd();
}

const update = () => nodes.forEach(node => node.update());

function toEnd() {
  if (follow) $('scroll').scrollTop = $('scroll').scrollHeight;
}

// ---- calls ----

const lastTurn = () => tree.path(chat).findLast(m => m.role !== 'tool');
const openCalls = () => (lastTurn()?.tool_calls ?? []).filter(call => !resultOf(lastTurn(), call));

// Searches only the results directly after the message, because some models reuse an id in a later turn.
function resultOf(message, call) {
  const shown = tree.path(chat), after = shown.slice(shown.indexOf(message) + 1);
  const end = after.findIndex(m => m.role !== 'tool');
  return after.slice(0, end < 0 ? after.length : end).find(m => m.tool_call_id === call.id);
}

const addResult = (call, content) => tree.add(chat, {role: 'tool', tool_call_id: call.id, content});

function takeResult(message, call, text) {
  if (answer || resultOf(message, call)) return;
  addResult(call, text);
  update();
  keep();
  if (openCalls().length === 0) generate();
}

// ---- answers ----

// Streams an answer into an assistant message, which may have text already. `partial` marks an incomplete answer. It
// stays set after a reload, a stop, a lost connection or the token limit.
async function generate(message = tree.add(chat, {role: 'assistant', content: ''})) {
  const mine = {controller: new AbortController(), message, chat};
  const shown = tree.path(chat), begun = message.content ? message : null;
  const body = requestBody(shown.slice(0, shown.indexOf(message)), begun, $('model').value);
  message.partial = true;
  delete message.error;
  delete message.stats;
  answer = mine;
  if (!nodes.has(message)) append(message);
  setBusy(true);
  update();
  toEnd();
  try {
    message.stats = await api.stream(body, mine.controller.signal, delta => receive(mine, delta), ({total, processed}) => {
      const node = nodes.get(message);
      node.progress = processed < total ? `reading the prompt, ${Math.floor(100 * processed / total)} %` : '';
      node.update();
    });
    if (message.stats.finish && message.stats.finish !== 'length') delete message.partial;
    if (!message.stats.finish) message.error = 'The answer was cut off.';
  } catch (error) {
    const begins = message.content || message.reasoning;
    if (error instanceof api.ServerError) message.error = error.message;
    else if (error.name !== 'AbortError') message.error = begins ? 'The answer broke off: the connection to the server was lost.' : 'The server cannot be reached.';
  }
  finish(mine);
}

function receive(mine, {content, reasoning, calls}) {
  const {message} = mine, now = performance.now();
  message.content += content;
  addCalls(message, calls);
  if (reasoning) message.reasoning = (message.reasoning || '') + reasoning;
  if (now - (mine.saved ?? now - SAVE_MS) >= SAVE_MS) {
    store.save(mine.chat);
    mine.saved = now;
  }
  if (!mine.drawn) requestAnimationFrame(() => {
    mine.drawn = false;
    nodes.get(message)?.update();
    toEnd();
  });
  mine.drawn = true;
}

function finish(mine) {
  const {message} = mine, node = nodes.get(message);
  if (answer === mine) {
    answer = null;
    setBusy(false);
  }
  if (node) {
    node.progress = '';
    update();
    toEnd();
    say(message.partial ? 'The answer is not finished.' : `The answer is complete. ${node.body.innerText}`);
  }
  keep(mine.chat);
  showList();
  if (!$('model').value) loadModels(say);
}

function send(text, files = []) {
  const unanswered = openCalls();
  unanswered.forEach(call => addResult(call, 'There is no result.'));
  if (!chat.messages.length) chat.title = store.titleOf(text || files[0].name);
  append(tree.add(chat, {role: 'user', content: text, ...(files.length && {files})}));
  follow = true;
  keep();
  showTitle();
  history.replaceState(null, '', '#' + chat.id);
  generate();
}

function edit(old, text) {
  stop();
  tree.addVersion(chat, old, {role: 'user', content: text, ...(old.files && {files: old.files})});
  show();
  generate();
}

function regenerate(old) {
  stop();
  tree.choose(chat, old);
  const again = isLost(old) && old === lastTurn() ? old : tree.addVersion(chat, old, {role: 'assistant', content: ''});
  show();
  generate(again);
}

function choose(message) {
  stop();
  tree.choose(chat, message);
  keep();
  show();
}

function stop() {
  answer?.controller.abort();
  answer = null;
  setBusy(false);
}

function setBusy(busy) {
  $('send').textContent = busy ? '■' : '➤';
  $('send').setAttribute('aria-label', busy ? 'Stop' : 'Send');
  $('messages').setAttribute('aria-busy', busy);
}

// ---- conversations ----

function open(one) {
  stop();
  chat = one;
  follow = true;
  setSide(false);
  clearPrompt();
  const hash = chat.messages.length ? '#' + chat.id : '';
  if (location.hash !== hash) history.pushState(null, '', hash || location.pathname);
  show();
  $('prompt').focus();
}

// Opens the conversation whose id is in the address.
function openAddress() {
  const id = location.hash.slice(1), found = id && store.find(id);
  if (id === chat.id) return;
  if (id && !found) {
    say('This browser has no such conversation.', true);
    history.replaceState(null, '', location.pathname);
  }
  open(found || store.fresh());
}

// Questions of this conversation, then of the others, newest first.
function questions() {
  const asked = messages => messages.filter(m => m.role === 'user').map(m => m.content).reverse();
  const others = store.all().filter(one => one.id !== chat.id);
  return [...new Set([...asked(tree.path(chat)), ...others.flatMap(one => asked(one.messages))])].filter(Boolean);
}

const page = {
  say, edit, regenerate, choose, takeResult, resultOf, open,
  goOn: message => generate(message),
  streams: message => answer?.message === message,
  isLast: message => lastTurn() === message,
  versions: message => tree.versions(chat, message),
  current: () => chat,
  change(one) {
    const changed = one.id === chat.id ? Object.assign(chat, {title: one.title}) : one;
    keep(changed);
    showTitle();
  },
  remove(one) {
    store.remove(one.id);
    if (one.id === chat.id) open(store.fresh());
    else showList();
  },
};

// ---- the page ----

function wireKeys() {
  document.addEventListener('keydown', event => {
    const control = event.ctrlKey || event.metaKey, asked = document.querySelector('dialog[open]');
    if (event.key === 'Escape' && !asked && $('side').classList.contains('open')) {
      setSide(false);
      $('menu').focus();
    } else if (event.key === 'Escape' && !asked && answer) {
      stop();
    }
    if (control && event.shiftKey && event.key.toLowerCase() === 'o') {
      event.preventDefault();
      open(store.fresh());
    }
    if (control && event.key === ',' && !asked) {
      event.preventDefault();
      openSettings();
    }
  });
  document.querySelector('.skip').addEventListener('click', event => {
    event.preventDefault();  // the address's fragment is a conversation's id
    $('prompt').focus();
  });
}

function wireScroll() {
  $('scroll').addEventListener('scroll', () => {
    const box = $('scroll');
    follow = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    $('down').hidden = follow;
  });
  $('down').addEventListener('click', () => {
    follow = true;
    toEnd();
  });
}

// Called when another tab has changed a conversation.
function takeChange({key}) {
  showList();
  const changed = store.find(chat.id);
  if (key !== store.keyOf(chat.id) || answer || !changed) return;
  chat = changed;
  show();
}

setTheme();
wirePrompt({send, stop, isBusy: () => answer !== null, questions, say});
wireSide(page);
wireSettings({say, removeAll() {
  store.all().forEach(one => store.remove(one.id));
  open(store.fresh());
}});
wireKeys();
wireScroll();
$('ideas').append(...IDEAS.map(text => make('button', {type: 'button', onclick: () => send(text)}, text)));
addEventListener('popstate', openAddress);
addEventListener('storage', takeChange);
addEventListener('pagehide', () => answer && store.save(answer.chat));
if (location.hash.length > 1) openAddress();
else show();
loadModels(say);
