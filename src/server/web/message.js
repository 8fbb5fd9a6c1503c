// One message on the page: its text, its thoughts and calls, and the buttons below it. `page` has the functions of
// chat.js for the buttons.
import {boxedNode, findBoxes} from '/boxes.js';
import {CallBlock} from '/calls.js';
import {copyButton, make} from '/dom.js';
import {fileNode} from '/files.js';
import {View} from '/markdown.js';

const button = (text, action, attributes = {}) => make('button', {type: 'button', onclick: action, ...attributes}, text);

// A measured factor in words.
function speedup(gain) {
  if (Math.abs(gain - 1) < 0.05) return 'as fast as without drafts';
  return gain > 1 ? `${gain.toFixed(1)} times as fast` : `${Math.round(100 * (1 - gain))} % slower`;
}

// progress: a text in place of the figures, or ''. isFull: the answer has filled the model's context.
export function statsLine({stats, partial}, progress, isFull = false) {
  if (progress) return progress;
  const parts = [];
  if (stats?.usage) {
    const {usage, timings} = stats, cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    parts.push(`${usage.completion_tokens} tokens`);
    if (timings?.predicted_per_second) parts.push(`${timings.predicted_per_second.toFixed(1)} tok/s`);
    if (timings?.draft_n) {
      const gain = timings.draft_gain ? ', ' + speedup(timings.draft_gain) : '';
      parts.push(`${timings.tokens_per_step.toFixed(1)} tokens a step, ` +
        `${timings.draft_n_accepted} of ${timings.draft_n} draft tokens accepted${gain}`);
    }
    if (timings) parts.push(`first token after ${Math.round(timings.queue_ms + timings.prompt_ms)} ms`);
    const ofImages = usage.prompt_tokens_details?.image_tokens;
    parts.push(`prompt ${usage.prompt_tokens}${ofImages ? `, ${ofImages} of images` : ''}${cached ? `, ${Math.round(100 * cached / usage.prompt_tokens)} % cached` : ''}`);
  }
  if (partial) parts.push(isFull ? 'cut, because the context is full' : stats?.finish === 'length' ? 'cut at the token limit' : 'not finished');
  return parts.join(' · ');
}

export class MessageNode {
  constructor(message, page) {
    Object.assign(this, {message, page, progress: '', calls: []});
    const mine = message.role === 'user';
    this.body = make('div', {class: 'body'});
    this.tools = make('div', {class: 'tools'});
    this.stats = make('span', {class: 'stats'});
    this.node = make('article', {class: `message ${message.role}`, 'aria-label': mine ? 'You' : 'Answer'}, this.body, this.tools);
    if (mine && message.files) this.node.append(make('div', {class: 'files'}, ...message.files.map(fileNode)), this.tools);
    if (mine) this.editButton = button('Edit', () => this.edit());
    this.again = mine ? this.editButton : button('Regenerate', () => page.regenerate(message));
    this.copy = copyButton(() => message.content, page.say);
    this.goOn = button('Continue', () => page.goOn(message));
    if (!mine) this.view = new View(this.body);
    this.update();
  }

  update() {
    if (this.message.role === 'user') {
      this.body.textContent = this.message.content;
      this.body.hidden = !this.message.content;
    } else {
      this.showThoughts();
      this.view.update(this.message.content);
      this.showBoxes();
      this.showCalls();
      this.showError();
    }
    this.showTools();
  }

  showTools() {
    const {message, page} = this, streams = page.streams(message), all = page.versions(message), at = all.indexOf(message);
    const step = (text, label, other) => button(text, () => page.choose(other), {'aria-label': label, ...(other ? {} : {disabled: ''})});
    const switcher = all.length < 2 ? [] : [make('span', {class: 'versions'}, step('‹', 'Earlier version', all[at - 1]),
      `${at + 1}/${all.length}`, step('›', 'Later version', all[at + 1]))];
    const wanted = [...switcher, this.copy, this.again];
    const goesOn = message.partial && message.content && !message.tool_calls && page.isLast(message) && !streams;
    const isFull = goesOn && !page.canGoOn(message);
    if (goesOn && !isFull) wanted.push(this.goOn);
    const state = [all.length, at, wanted.length, streams].join();
    if (state !== this.toolState) this.tools.replaceChildren(...wanted, this.stats);  // unchanged: keep the focus
    this.toolState = state;
    this.stats.textContent = message.role === 'user' || (streams && !this.progress) ? '' : statsLine(message, this.progress, isFull);
    this.node.classList.toggle('busy', streams);
  }

  showThoughts() {
    const {reasoning, content} = this.message;
    if (!reasoning) return;
    if (!this.thinking) {
      this.thought = make('div', {class: 'body'});
      this.summary = make('summary');
      this.thinking = make('details', {class: 'thinking'}, this.summary, this.thought);
      this.thinkingView = new View(this.thought);
      this.node.prepend(this.thinking);
    }
    this.summary.textContent = !content && this.page.streams(this.message) ? 'Thinking …' : 'Thoughts';
    this.thinkingView.update(reasoning);
  }

  // Again only if there are more boxes.
  showBoxes() {
    const boxes = findBoxes(this.message.content ?? ''), picture = boxes.length ? this.page.pictureBefore(this.message) : undefined;
    if (!picture || boxes.length === this.nBoxes) return;
    const node = boxedNode(picture, boxes, this.page.boxUnit());
    if (this.boxed) this.boxed.replaceWith(node);
    else this.body.after(node);
    Object.assign(this, {boxed: node, nBoxes: boxes.length});
  }

  showCalls() {
    const {message, page} = this;
    (message.tool_calls ?? []).forEach((call, i) => {
      if (!this.calls[i]) {
        this.calls[i] = new CallBlock(call, text => page.takeResult(message, call, text));
        this.tools.before(this.calls[i].node);
      }
      this.calls[i].update(page.resultOf(message, call)?.content, !page.streams(message) && page.isLast(message));
    });
  }

  showError() {
    const {error} = this.message;
    if (this.error?.textContent === error) return;
    this.error?.remove();
    this.error = error ? make('p', {class: 'error', role: 'alert'}, error) : undefined;
    if (error) this.body.after(this.error);
  }

  edit() {
    const area = make('textarea', {rows: '3', 'aria-label': 'Edit the message'});
    area.value = this.message.content;
    const close = () => {
      form.replaceWith(this.body);
      this.editButton.focus();
    };
    const submit = event => {
      event.preventDefault();
      const text = area.value.trim();
      close();
      if (text) this.page.edit(this.message, text);
    };
    const row = make('div', {class: 'row'}, button('Cancel', close), make('button', {}, 'Send'));
    const form = make('form', {class: 'edit', onsubmit: submit}, area, row);
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
