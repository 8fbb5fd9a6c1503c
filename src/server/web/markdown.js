// Renders a model's Markdown as DOM nodes. Nothing is ever parsed as HTML. View renders a growing text and renders
// again only the blocks that changed.
import {copyButton, make} from '/dom.js';
import {highlight} from '/highlight.js';
import {inline, maths} from '/inline.js';

const FENCE = /^( {0,3})(`{3,}|~{3,})\s*([^\s`]*)/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?: +|$)/;
const RULE = /^ {0,3}([-*_])(?: *\1){2,} *$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const FORMULA = /^ {0,3}(\$\$|\\\[|\\begin\{\w+\*?\})/;
const NOTE = /^ {0,3}\[\^([^\]\s]{1,40})\]:[ \t]*(.*)$/;
const TABLE_RULE = /^ *\|? *:?-+:? *(?:\| *:?-+:? *)*\|? *$/;

// The token that closes a formula opened by `open`.
const closing = open => ({'$$': '$$', '\\[': '\\]'})[open] ?? open.replace('begin', 'end');

// The index of the line after the formula that begins in line `begin`, or 0 if the formula has no end.
function formulaEnd(lines, begin) {
  const [all, open] = FORMULA.exec(lines[begin]);
  const end = lines.findIndex((line, i) => i >= begin && (i > begin ? line : line.slice(all.length)).includes(closing(open)));
  return end + 1;
}

// Splits a text into its outermost blocks: {kind, lines}. Lists and quotations are split further when they are
// rendered.
export function blocks(text) {
  const lines = text.replace(/\r\n?/g, '\n').split('\n');
  const found = [];
  let i = 0;
  const take = (kind, more) => {
    const begin = i++;
    while (i < lines.length && more(lines[i], i)) ++i;
    found.push({kind, lines: lines.slice(begin, i)});
  };
  while (i < lines.length) {
    const line = lines[i];
    const fence = FENCE.exec(line), formulaStop = FORMULA.test(line) ? formulaEnd(lines, i) : 0;
    if (!line.trim()) {
      ++i;
    } else if (fence) {
      const close = new RegExp(`^ {0,3}${fence[2][0]}{${fence[2].length},} *$`);
      const begin = i++;
      while (i < lines.length && !close.test(lines[i])) ++i;
      found.push({kind: 'code', lines: lines.slice(begin + 1, i), language: fence[3], indent: fence[1].length});
      ++i;
    } else if (formulaStop) {
      take('formula', (l, at) => at < formulaStop);
    } else if (NOTE.test(line)) {
      take('note', (l, at) => /^(?: {2,}|\t)\S/.test(l) || (!l.trim() && /^(?: {2,}|\t)\S/.test(lines[at + 1] ?? '')) ||
                              (l.trim() && lines[at - 1].trim() && !NOTE.test(l) && !FENCE.test(l) && !HEADING.test(l)));
    } else if (HEADING.test(line)) {
      take('heading', () => false);
    } else if (RULE.test(line)) {
      take('rule', () => false);
    } else if (/^ {0,3}>/.test(line)) {
      take('quote', l => l.trim() && !FENCE.test(l));
    } else if (ITEM.test(line)) {
      // The list continues with items of its kind, with indented lines, and with lines that follow without a blank
      // line.
      const [, indent, mark] = ITEM.exec(line), ordered = /\d/.test(mark);
      const other = l => ITEM.test(l) && ITEM.exec(l)[1].length <= indent.length + 1 && /\d/.test(ITEM.exec(l)[2]) !== ordered;
      const belongs = l => (ITEM.test(l) && !other(l)) || /^ {2,}\S/.test(l);
      take('list', (l, at) => belongs(l) || (!l.trim() && at + 1 < lines.length && belongs(lines[at + 1])) ||
                              (l.trim() && lines[at - 1].trim() && !other(l) && !FENCE.test(l) && !HEADING.test(l)));
    } else if (line.includes('|') && i + 1 < lines.length && TABLE_RULE.test(lines[i + 1]) && lines[i + 1].includes('-')) {
      take('table', l => l.includes('|'));
    } else {
      take('paragraph', l => l.trim() && !FENCE.test(l) && !HEADING.test(l) && !RULE.test(l) && !FORMULA.test(l) &&
                             !/^ {0,3}>/.test(l) && !ITEM.test(l) && !NOTE.test(l));
    }
  }
  return found;
}

function code(block) {
  const text = block.lines.map(l => l.slice(Math.min(block.indent, l.search(/\S|$/)))).join('\n');
  const copy = copyButton(() => text, undefined, {class: 'copy', 'aria-label': 'Copy this code'});
  const head = make('div', {class: 'code-head'}, make('span', {}, block.language || 'text'), copy);
  return make('div', {class: 'code'}, head, make('pre', {tabindex: '0'}, make('code', {}, ...highlight(text, block.language))));
}

// A formula on separate lines, and the text after it.
function formulaBlock(text) {
  const [all, open] = FORMULA.exec(text), close = closing(open);
  const end = text.indexOf(close, all.length) + close.length, source = text.slice(0, end);
  const inner = open.startsWith('\\begin') ? source : source.slice(all.length, -close.length);
  return make('p', {}, ...maths(source, inner, true), ...inline(text.slice(end)));
}

function list(lines) {
  const first = ITEM.exec(lines[0]);
  const ordered = /\d/.test(first[2]);
  const items = [];
  for (const line of lines) {
    const item = ITEM.exec(line);
    if (item && item[1].length <= first[1].length + 1) {
      items.push({indent: item[0].length, lines: [line.slice(item[0].length)]});
    } else {
      const last = items[items.length - 1];
      last.lines.push(line.slice(Math.min(last.indent, line.search(/\S|$/))));
    }
  }
  const nodes = items.map(({lines: own}) => {
    const task = /^\[([ xX])\] /.exec(own[0]);
    if (task) own[0] = (task[1] === ' ' ? '☐ ' : '☑ ') + own[0].slice(4);
    const inner = blocks(own.join('\n'));
    const tight = inner.length > 0 && inner[0].kind === 'paragraph';
    return make('li', {}, ...(tight ? inline(lined(inner[0])) : []), ...inner.slice(tight ? 1 : 0).map(render));
  });
  return make(ordered ? 'ol' : 'ul', ordered && parseInt(first[2]) !== 1 ? {start: parseInt(first[2])} : {}, ...nodes);
}

function table(lines) {
  const cells = line => line.trim().replace(/^\||\|$/g, '').split(/(?<!\\)\|/).map(c => c.trim().replace(/\\\|/g, '|'));
  const align = cells(lines[1]).map(c => c.endsWith(':') ? (c.startsWith(':') ? 'center' : 'right') : '');
  const cell = (text, i, tag) => make(tag, align[i] ? {class: align[i]} : {}, ...inline(text));
  const row = (line, tag) => make('tr', {}, ...cells(line).map((text, i) => cell(text, i, tag)));
  const body = make('tbody', {}, ...lines.slice(2).map(l => row(l, 'td')));
  return make('div', {class: 'table'}, make('table', {}, make('thead', {}, row(lines[0], 'th')), body));
}

// A footnote: its name, and its text.
function note(lines) {
  const [, name, first] = NOTE.exec(lines[0]);
  const inner = blocks([first, ...lines.slice(1).map(l => l.replace(/^(?: {1,4}|\t)/, ''))].join('\n'));
  return make('div', {class: 'note', 'data-note': name}, make('span', {class: 'note-name'}, name), make('div', {}, ...inner.map(render)));
}

// Switches references to notes on that the text has, and the others off.
function joinNotes(node) {
  const notes = new Map([...node.querySelectorAll('.note')].map(n => [n.dataset.note, n]));
  for (const ref of node.querySelectorAll('.note-ref')) {
    const name = ref.dataset.note, target = notes.get(name);
    ref.disabled = !target;
    ref.textContent = target ? name : `[^${name}]`;
    target ? ref.setAttribute('aria-label', `Note ${name}`) : ref.removeAttribute('aria-label');
    ref.onclick = () => notes.get(name)?.scrollIntoView({block: 'nearest'});
  }
}

// The text of a block. The model's line breaks are kept, for poems and addresses.
const lined = block => block.lines.map(l => l.trim()).join('\n');

export function render(block) {
  switch (block.kind) {
    case 'code': return code(block);
    case 'formula': return formulaBlock(block.lines.join('\n'));
    case 'rule': return make('hr');
    case 'heading': {
      const [, marks, title] = HEADING.exec(block.lines[0]);
      return make(`h${Math.min(marks.length + 1, 6)}`, {}, ...inline(title));
    }
    case 'quote': return make('blockquote', {}, ...blocks(block.lines.map(l => l.replace(/^ {0,3}> ?/, '')).join('\n')).map(render));
    case 'list': return list(block.lines);
    case 'table': return table(block.lines);
    case 'note': return note(block.lines);
    default: return make('p', {}, ...inline(lined(block)));
  }
}

export class View {
  constructor(node) {
    this.node = node;
    this.keys = [];
  }

  update(text) {
    const now = blocks(text);
    const keys = now.map(b => b.kind + (b.language || '') + '\n' + b.lines.join('\n'));
    let same = 0;
    while (same < keys.length && keys[same] === this.keys[same]) ++same;
    while (this.node.childNodes.length > same) this.node.lastChild.remove();
    this.node.append(...now.slice(same).map(render));
    this.keys = keys;
    if (text.includes('[^')) joinNotes(this.node);
  }
}
