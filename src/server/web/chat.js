// The chat page: conversations on the left, messages on the right. The page shows one conversation; answers.js writes
// answers in any of them. The page is rendered from this state.
import * as answers from '/answers.js';
import * as context from '/context.js';
import {make} from '/dom.js';
import {isImage} from '/images.js';
import {MessageNode} from '/message.js';
import {chosenModel, loadModels, openSettings, setTheme, wireSettings} from '/settings.js';
import {clearPrompt, wirePrompt} from '/prompt.js';
import {isLost} from '/request.js';
import {setSide, showList, wireSide} from '/side.js';
import * as store from '/store.js';
import * as tree from '/tree.js';

const $ = id => document.getElementById(id);
const IDEAS = ['Tell me a story about a fox.', 'What is 7 + 5?', 'Write a short poem about the sea.', 'Explain photosynthesis to a child.'];
const TOAST_MS = 6000;

let chat = store.fresh();
let nodes = new Map();  // message -> MessageNode, for the messages on the page
let follow = true;      // scroll to the newest line
let toast, drawing = false;

// Announces the text to screen readers. `seen`: also shows it.
function say(text, seen = false) {
  $('status').textContent = text;
  $('status').className = seen ? 'toast' : 'sr';
  clearTimeout(toast);
  if (seen) toast = setTimeout(() => $('status').className = 'sr', TOAST_MS);
}

async function keep(one = chat, writing = false) {
  const failure = await store.save(one, writing);
  if (failure) say(`This browser does not save the conversation (${failure}). It stays on this page: export it, and delete what you do not need.`, true);
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

// The line between the turns that the model no longer sees and the others.
function showOmitted() {
  const seen = context.firstSeen(chat), node = seen && nodes.get(seen.message)?.node;
  document.querySelector('.omitted')?.remove();
  const turns = seen?.omitted === 1 ? 'turn' : `${seen?.omitted} turns`;
  node?.before(make('p', {class: 'omitted', role: 'note'}, `The context is full: the model no longer sees the ${turns} above.`));
}

function showContext() {
  const promptTokens = answers.of(chat)?.promptTokens ?? null;
  context.showMeter($('context'), promptTokens ?? context.used(chat), chosenModel()?.max_model_len);
}

function show() {
  nodes = new Map();
  $('messages').replaceChildren();
  tree.path(chat).filter(m => m.role !== 'tool').forEach(append);
  showTitle();
  showOmitted();
  showBusy();
  toEnd();
}

function update() {
  nodes.forEach(node => node.update());
  showOmitted();
  showContext();
}

function toEnd() {
  if (follow) $('scroll').scrollTop = $('scroll').scrollHeight;
}

function showBusy() {
  const busy = answers.of(chat) !== null;
  $('send').textContent = busy ? '■' : '➤';
  $('send').setAttribute('aria-label', busy ? 'Stop' : 'Send');
  $('messages').setAttribute('aria-busy', busy);
  showContext();
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
  if (answers.of(chat) || resultOf(message, call)) return;
  addResult(call, text);
  update();
  keep();
  if (openCalls().length === 0) generate();
}

// ---- answers ----

const generate = (message = tree.add(chat, {role: 'assistant', content: ''})) => answers.start(chat, message, chosenModel());

// How answers.js reaches the page. The message may belong to a conversation that is not on the page.
const writing = {
  keep,
  begun(one, message) {
    if (one === chat) {
      if (!nodes.has(message)) append(message);
      update();
      showBusy();
      toEnd();
    }
    showList();
  },
  drawn(message) {
    if (drawing || !nodes.has(message)) return;
    drawing = true;
    requestAnimationFrame(() => {
      drawing = false;
      answers.all().forEach(one => nodes.get(one.message)?.update());
      toEnd();
    });
  },
  progressed(message, text) {
    const node = nodes.get(message);
    if (!node) return;
    node.progress = text;
    node.update();
    showContext();
  },
  ended(one, message) {
    const node = nodes.get(message);
    if (node) {
      node.progress = '';
      update();
      toEnd();
      say(message.partial ? 'The answer is not finished.' : `The answer is complete. ${node.body.innerText}`);
    } else {
      say(`The answer in “${one.title}” is ${message.partial ? 'not finished' : 'complete'}.`);
    }
    showBusy();
    keep(one);
    showList();
    if (!chosenModel()?.max_model_len) loadModels(say);
  },
};

function send(text, files = []) {
  if (answers.isElsewhere(chat.id)) return say('Another tab is writing an answer in this conversation.', true);
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
  answers.stop(chat);
  showBusy();
}

// ---- conversations ----

function open(one) {
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

async function removeAll(chats) {
  chats.forEach(one => answers.stop(one, true));
  const failure = await store.remove(...chats.map(one => one.id));
  if (failure) say(`This browser did not delete the conversation (${failure}). Try again.`, true);
  if (chats.some(one => one.id === chat.id)) open(store.fresh());
  else showList();
}

const page = {
  say, edit, regenerate, choose, takeResult, resultOf, open,
  goOn: message => generate(message),
  streams: message => answers.of(chat)?.message === message,
  isLast: message => lastTurn() === message,
  pictureBefore: message => tree.path(chat).slice(0, tree.path(chat).indexOf(message)).flatMap(m => m.files ?? []).findLast(isImage),
  boxUnit: () => chosenModel()?.images?.boxes,
  canGoOn: message => context.canGoOn(chat, message, chosenModel()?.max_model_len),
  versions: message => tree.versions(chat, message),
  current: () => chat,
  change(one) {  // the title, the system prompt or the schema has changed
    if (one.messages.length) keep(one);
    showTitle();
  },
  remove: one => removeAll([one]),
};

// Another tab has stored or deleted (null) a conversation.
function takeChange(id, stored, isWriting) {
  const mine = store.find(id);
  answers.note(id, isWriting);
  if (mine && answers.of(mine)) return;  // this tab writes it
  store.take(id, stored);
  showList();
  if (id !== chat.id || !stored) return;
  chat = stored;
  show();
}

// ---- the page ----

function wireKeys() {
  document.addEventListener('keydown', event => {
    const control = event.ctrlKey || event.metaKey, asked = document.querySelector('dialog[open]');
    if (event.key === 'Escape' && !asked && $('side').classList.contains('open')) {
      setSide(false);
      $('menu').focus();
    } else if (event.key === 'Escape' && !asked && answers.of(chat)) {
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

setTheme();
answers.wire(writing);
wirePrompt({send, stop, isBusy: () => answers.of(chat) !== null, questions, say, model: chosenModel});
wireSide(page);
wireSettings({say, page, modelChanged: update, removeAll: () => removeAll([...store.all(), chat])});
wireKeys();
wireScroll();
$('ideas').append(...IDEAS.map(text => make('button', {type: 'button', onclick: () => send(text)}, text)));
const refusal = await store.load();
if (refusal) say(refusal, true);
store.watch(takeChange, answers.isMine);
addEventListener('popstate', openAddress);
addEventListener('pagehide', () => answers.all().forEach(one => store.save(one.chat)));
if (location.hash.length > 1) openAddress();
else show();
await loadModels(say);
answers.resumeAll();
