// The chat page: conversations on the left, messages on the right. The state is one conversation and at most one answer that
// streams; everything shown is made from them.
import * as api from '/api.js';
import {addCalls, CallBlock, readTools, sentCalls} from '/calls.js';
import {make} from '/dom.js';
import {copyText, View} from '/markdown.js';
import * as store from '/store.js';

const $ = id => document.getElementById(id);
const {settings} = store;
const IDEAS = ['Tell me a story about a fox.', 'What is 7 + 5?', 'Write a short poem about the sea.', 'Explain photosynthesis to a child.'];

let chat = store.fresh();
let answer = null;   // {controller, message, node}: what streams now
let follow = true;   // keep the newest line in sight

const say = text => $('status').textContent = text;

// ---- text ----

function statsLine({usage, timings, finish}) {
  if (!usage) return '';
  const parts = [`${usage.completion_tokens} tokens`];
  if (timings?.predicted_per_second) parts.push(`${timings.predicted_per_second.toFixed(1)} tok/s`);
  if (timings) parts.push(`first after ${Math.round(timings.queue_ms + timings.prompt_ms)} ms`);
  const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
  parts.push(`prompt ${usage.prompt_tokens}${cached ? `, ${Math.round(100 * cached / usage.prompt_tokens)} % cached` : ''}`);
  if (finish === 'length') parts.push('cut at the limit');
  return parts.join(' · ');
}

// ---- messages ----

class MessageNode {
  constructor(message, index) {
    this.message = message;
    this.body = make('div', {class: 'body'});
    this.tools = make('div', {class: 'tools'});
    this.node = make('article', {class: `message ${message.role}`, 'aria-label': message.role === 'user' ? 'You' : 'Answer'}, this.body, this.tools);
    const button = (text, action) => make('button', {type: 'button', onclick: action}, text);
    this.tools.append(button('Copy', () => copyText(message.content).then(() => say('Copied.'))));
    if (message.role === 'user') {
      this.editButton = button('Edit', () => this.edit(index));
      this.tools.append(this.editButton);
    } else {
      this.tools.append(button('Regenerate', () => regenerate(index)));
      this.stats = make('span', {class: 'stats'});
      this.tools.append(this.stats);
      this.view = new View(this.body);
      this.calls = [];
    }
    this.update();
  }

  update() {
    if (this.message.role === 'user') {
      this.body.textContent = this.message.content;
      return;
    }
    const {reasoning, content} = this.message;
    if (reasoning) {
      if (!this.thinking) {
        this.thought = make('div', {class: 'body'});
        this.summary = make('summary');
        this.thinking = make('details', {class: 'thinking'}, this.summary, this.thought);
        this.thinkingView = new View(this.thought);
        this.node.prepend(this.thinking);
      }
      this.summary.textContent = !content && answer?.message === this.message ? 'Thinking …' : 'Thoughts';
      this.thinkingView.update(reasoning);
    }
    this.view.update(content);
    this.showCalls();
    this.stats.textContent = this.message.stats ? statsLine(this.message.stats) : this.progress || '';
    if (this.message.error && !this.error) {
      this.error = make('p', {class: 'error', role: 'alert'}, this.message.error);
      this.body.after(this.error);
    }
  }

  showCalls() {
    const streams = answer?.message === this.message;
    (this.message.tool_calls ?? []).forEach((call, i) => {
      if (!this.calls[i]) {
        this.calls[i] = new CallBlock(call, text => takeResult(this, call, text));
        this.tools.before(this.calls[i].node);
      }
      this.calls[i].update(resultOf(this.message, call)?.content, !streams && lastTurn() === this.message);
    });
  }

  edit(index) {
    const area = make('textarea', {rows: '3', 'aria-label': 'Edit the message'});
    area.value = this.message.content;
    const close = () => {
      form.replaceWith(this.body);
      this.editButton.focus();
    };
    const form = make('form', {class: 'edit', onsubmit: event => {
      event.preventDefault();
      const text = area.value.trim();
      close();
      if (!text) return;
      stop();
      chat.messages.length = index;
      show();
      send(text);
    }}, area, make('div', {class: 'row'}, make('button', {type: 'button', onclick: close}, 'Cancel'), make('button', {}, 'Send')));
    area.addEventListener('keydown', event => {
      if (event.key === 'Escape') {
        event.stopPropagation();
        close();
      }
      if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        form.requestSubmit();
      }
    });
    this.body.replaceWith(form);
    area.focus();
  }
}

function append(message) {
  const made = new MessageNode(message, chat.messages.indexOf(message));
  $('messages').append(made.node);
  return made;
}

function show() {
  $('messages').replaceChildren();
  chat.messages.filter(m => m.role !== 'tool').forEach(append);
  $('hello').hidden = chat.messages.length > 0;
  $('title').textContent = chat.title;
  document.title = chat.messages.length ? `${chat.title} – ingot` : 'ingot';
  showList();
  toEnd();
}

function toEnd() {
  if (follow) $('scroll').scrollTop = $('scroll').scrollHeight;
}

// ---- calls ----

const lastTurn = () => chat.messages.findLast(m => m.role !== 'tool');
const openCalls = () => (lastTurn()?.tool_calls ?? []).filter(call => !resultOf(lastTurn(), call));

// Among the results that follow the message: some models use an id again in a later turn.
function resultOf(message, call) {
  const after = chat.messages.slice(chat.messages.indexOf(message) + 1);
  const end = after.findIndex(m => m.role !== 'tool');
  return after.slice(0, end < 0 ? after.length : end).find(m => m.tool_call_id === call.id);
}

function addResult(call, content) {
  chat.messages.push({role: 'tool', tool_call_id: call.id, content});
}

function takeResult(made, call, text) {
  if (answer || resultOf(made.message, call)) return;
  addResult(call, text);
  made.update();
  keep();
  if (openCalls().length === 0) generate();
}

// ---- answers ----

// An answer of which nothing came. The next request leaves it out, and the question with it: many templates want turns to alternate, and
// what was refused once would be again.
const isLost = message => message?.error && !message.content && !message.tool_calls;

function requestBody() {
  const body = {messages: []};
  const v = settings.values;
  if (v.system.trim()) body.messages.push({role: 'system', content: v.system});
  chat.messages.forEach((message, i) => {
    const {role, content, reasoning, tool_calls: calls, tool_call_id: id} = message;
    if (message === answer?.message || isLost(message) || (role === 'user' && isLost(chat.messages[i + 1]))) return;
    const sent = {role, content};
    if (role === 'tool') sent.tool_call_id = id;
    if (calls) Object.assign(sent, {tool_calls: sentCalls(calls), ...(reasoning && {reasoning_content: reasoning})});
    body.messages.push(sent);
  });
  const tools = readTools(v.tools);
  if (tools) body.tools = tools;
  for (const name of ['temperature', 'top_p', 'top_k', 'min_p', 'max_tokens', 'seed', 'repetition_penalty'])
    if (v[name] !== '') body[name] = Number(v[name]);
  if ($('model').value) body.model = $('model').value;
  return body;
}

function keep() {
  if (!store.save(chat)) say('The browser’s store is full: this conversation is not kept. Export and delete some.');
}

async function generate() {
  const message = {role: 'assistant', content: ''};
  chat.messages.push(message);
  const made = append(message);
  answer = {controller: new AbortController(), message, node: made};
  made.node.classList.add('busy');
  setBusy(true);
  const mine = answer, owner = chat;
  let drawn = false;
  const draw = () => {
    drawn = false;
    made.update();
    toEnd();
  };
  try {
    message.stats = await api.stream(requestBody(), mine.controller.signal, ({content, reasoning, calls}) => {
      message.content += content;
      addCalls(message, calls);
      if (reasoning) message.reasoning = (message.reasoning || '') + reasoning;
      if (!drawn) requestAnimationFrame(draw);
      drawn = true;
    }, ({total, processed}) => {
      made.progress = processed < total ? `reading, ${Math.floor(100 * processed / total)} %` : '';
      made.update();
    });
    if (!message.stats.finish) message.error = 'The answer was cut off.';
    say('The answer is complete.');
  } catch (error) {
    if (error.name === 'AbortError') say('Stopped.');
    else if (error instanceof api.ServerError) message.error = error.message;
    else message.error = message.content || message.reasoning ? 'The answer broke off: the connection to the server was lost.' : 'The server cannot be reached.';
  }
  made.node.classList.remove('busy');
  made.progress = '';
  if (answer === mine) {
    answer = null;
    setBusy(false);
  }
  made.update();
  toEnd();
  if (owner === chat) {
    keep();
  } else {
    store.save(owner);
  }
  showList();
}

function send(text) {
  const unanswered = openCalls();
  unanswered.forEach(call => addResult(call, 'There is no result.'));
  if (unanswered.length) show();
  if (!chat.messages.length) chat.title = text.replace(/\s+/g, ' ').slice(0, 60);
  const message = {role: 'user', content: text};
  chat.messages.push(message);
  append(message);
  $('hello').hidden = true;
  $('title').textContent = chat.title;
  follow = true;
  keep();
  showList();
  generate();
}

function regenerate(index) {
  stop();
  chat.messages.length = index;
  show();
  generate();
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

function showList() {
  const found = $('search').value.trim() ? store.search($('search').value) : store.all();
  $('list').replaceChildren(...found.map(one => make('li', one.id === chat.id ? {class: 'on'} : {},
    make('button', {type: 'button', class: 'open', title: one.title, onclick: () => open(one), ...(one.id === chat.id ? {'aria-current': 'true'} : {})}, one.title),
    make('button', {type: 'button', class: 'delete', 'aria-label': `Delete “${one.title}”`, onclick: () => {
      if (!confirm(`Delete “${one.title}”?`)) return;
      store.remove(one.id);
      if (one.id === chat.id) open(store.fresh());
      else showList();
    }}, '✕'))));
}

function open(one) {
  stop();
  chat = one;
  follow = true;
  setSide(false);
  show();
  $('prompt').focus();
}

function setSide(isOpen) {
  $('side').classList.toggle('open', isOpen);
  $('shade').hidden = !isOpen;
  $('menu').setAttribute('aria-expanded', isOpen);
  if (isOpen) $('new').focus();
}

function download(text, name) {
  const url = URL.createObjectURL(new Blob([text], {type: 'application/json'}));
  make('a', {href: url, download: name}).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

// ---- the page ----

function fit() {
  const area = $('prompt');
  area.style.height = 'auto';
  area.style.height = area.scrollHeight + 'px';
}

function setTheme() {
  const theme = settings.values.theme;
  if (theme === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

async function loadModels() {
  try {
    const models = await api.models();
    $('model').replaceChildren(...models.map(m => make('option', {value: m.id}, m.id)));
    if (models.some(m => m.id === settings.values.model)) $('model').value = settings.values.model;
  } catch (error) {
    $('model').replaceChildren(make('option', {value: ''}, 'none'));
    say(error.message);
  }
}

function wireForm() {
  $('form').addEventListener('submit', event => {
    event.preventDefault();
    if (answer) return stop();
    const text = $('prompt').value.trim();
    if (!text) return;
    $('prompt').value = '';
    fit();
    send(text);
  });
  $('prompt').addEventListener('input', fit);
  $('prompt').addEventListener('keydown', event => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      if (!answer) $('form').requestSubmit();
    }
  });
  $('ideas').append(...IDEAS.map(text => make('button', {type: 'button', onclick: () => send(text)}, text)));
}

function wireSide() {
  $('new').addEventListener('click', () => open(store.fresh()));
  $('search').addEventListener('input', showList);
  $('menu').addEventListener('click', () => setSide(!$('side').classList.contains('open')));
  $('shade').addEventListener('click', () => setSide(false));
  $('export').addEventListener('click', () => download(store.exported(), 'conversations.json'));
  $('import').addEventListener('click', () => $('file').click());
  $('file').addEventListener('change', async () => {
    try {
      const n = store.take(await $('file').files[0].text());
      say(`${n} conversations imported.`);
    } catch (error) {
      alert(`Import failed: ${error.message}`);
    }
    $('file').value = '';
    showList();
  });
}

function openSettings() {
  for (const field of document.querySelectorAll('[data-setting]')) field.value = settings.values[field.dataset.setting];
  $('settings').showModal();
}

function wireSettings() {
  for (const field of document.querySelectorAll('[data-setting]')) {
    field.addEventListener('change', () => {
      field.setCustomValidity('');
      if (field.dataset.setting === 'tools') {
        try {
          readTools(field.value);
        } catch (error) {
          field.setCustomValidity(error.message);
          field.reportValidity();
          return;
        }
      }
      settings.set(field.dataset.setting, field.value);
      setTheme();
      if (field.dataset.setting === 'key') loadModels();
    });
  }
  $('open-settings').addEventListener('click', openSettings);
  $('clear').addEventListener('click', () => {
    if (!confirm('Delete all conversations of this browser?')) return;
    store.all().forEach(one => store.remove(one.id));
    $('settings').close();
    open(store.fresh());
  });
  $('model').addEventListener('change', () => settings.set('model', $('model').value));
}

function wireKeys() {
  document.addEventListener('keydown', event => {
    const control = event.ctrlKey || event.metaKey;
    if (event.key === 'Escape' && $('side').classList.contains('open')) {
      setSide(false);
      $('menu').focus();
    } else if (event.key === 'Escape' && answer && !$('settings').open) {
      stop();
    }
    if (control && event.shiftKey && event.key.toLowerCase() === 'o') {
      event.preventDefault();
      open(store.fresh());
    }
    if (control && event.key === ',') {
      event.preventDefault();
      openSettings();
    }
  });
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
wireForm();
wireSide();
wireSettings();
wireKeys();
show();
loadModels();
