// Markdown as a model writes it, into DOM nodes: nothing is ever parsed as HTML, links go to http, https and mailto only, and
// pictures are links, so that a text cannot fetch anything. View renders a text that grows: only the blocks that changed are
// made anew.
import {highlight} from '/highlight.js';

function element(tag, children = [], attributes = {}) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// Pages of another machine without TLS have no navigator.clipboard.
export async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = element('textarea', [], {class: 'sr', 'aria-hidden': 'true'}), focused = document.activeElement;
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand('copy');
  area.remove();
  focused?.focus();
}

// ---- inside a line ----

const INLINE = [
  [/^\\([\\`*_{}[\]()#+\-.!|~<>])/, m => [m[1]]],
  [/^(`+)([\s\S]*?[^`])\1(?!`)/, m => [element('code', [m[2].replace(/^ (.*) $/, '$1')])]],
  [/^!\[([^\]]*)\]\(((?:[^()\s]|\([^()\s]*\))+)(?:\s[^)]*)?\)/, m => link(m[2], [m[1] || m[2]])],  // a target may hold (a pair)
  [/^\[([^\]]+)\]\(((?:[^()\s]|\([^()\s]*\))+)(?:\s+"[^"]*")?\)/, m => link(m[2], inline(m[1]))],
  [/^<((?:https?:\/\/|mailto:)[^\s>]+)>/, m => link(m[1], [m[1]])],
  [/^https?:\/\/(?:[^\s<>()\]]|\([^\s<>()\]]*\))*(?:[^\s<>()\].,:;!?'"*_]|\([^\s<>()\]]*\))/, m => link(m[0], [m[0]])],
  [/^\*\*(?=\S)([\s\S]*?\S)\*\*/, m => [element('strong', inline(m[1]))]],
  [/^__(?=\S)([\s\S]*?\S)__(?!\w)/, m => [element('strong', inline(m[1]))]],
  [/^\*(?=[^\s*])([\s\S]*?[^\s*])\*(?!\*)/, m => [element('em', inline(m[1]))]],
  [/^_(?=[^\s_])([\s\S]*?[^\s_])_(?!\w)/, m => [element('em', inline(m[1]))]],
  [/^~~(?=\S)([\s\S]*?\S)~~/, m => [element('del', inline(m[1]))]],
  [/^(?: {2,}|\\)\n/, () => [element('br')]],
];

function link(target, children) {
  if (!/^(https?:|mailto:)/i.test(target)) return children;
  return [element('a', children, {href: target, target: '_blank', rel: 'noopener noreferrer'})];
}

export function inline(text) {
  const nodes = [];
  let plain = '';
  for (let i = 0; i < text.length;) {
    // Most characters begin nothing.
    const quick = /[\\`!\[<h*_~ \n]/.test(text[i]) && !(text[i] === '_' && /\w/.test(text[i - 1] || ''));
    const rest = quick ? text.slice(i, i + 4000) : '';
    const rule = quick && INLINE.map(([pattern, make]) => [pattern.exec(rest), make]).find(([match]) => match);
    if (!rule) {
      plain += text[i++];
      continue;
    }
    if (plain) nodes.push(plain);
    plain = '';
    nodes.push(...rule[1](rule[0]));
    i += rule[0][0].length;
  }
  if (plain) nodes.push(plain);
  return nodes;
}

// ---- blocks ----

const FENCE = /^( {0,3})(`{3,}|~{3,})\s*([^\s`]*)/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?: +|$)/;
const RULE = /^ {0,3}([-*_])(?: *\1){2,} *$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const TABLE_RULE = /^ *\|? *:?-+:? *(?:\| *:?-+:? *)*\|? *$/;

// Cuts a text into its outermost blocks: {kind, lines}. A list or a quotation is cut again when it is rendered.
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
    const fence = FENCE.exec(line);
    if (!line.trim()) {
      ++i;
    } else if (fence) {
      const close = new RegExp(`^ {0,3}${fence[2][0]}{${fence[2].length},} *$`);
      const begin = i++;
      while (i < lines.length && !close.test(lines[i])) ++i;
      found.push({kind: 'code', lines: lines.slice(begin + 1, i), language: fence[3], indent: fence[1].length});
      ++i;
    } else if (HEADING.test(line)) {
      take('heading', () => false);
    } else if (RULE.test(line)) {
      take('rule', () => false);
    } else if (/^ {0,3}>/.test(line)) {
      take('quote', l => l.trim() && !FENCE.test(l));
    } else if (ITEM.test(line)) {
      // It goes on with items of its kind, with what is indented, and with lines that follow without a gap.
      const [, indent, mark] = ITEM.exec(line), ordered = /\d/.test(mark);
      const other = l => ITEM.test(l) && ITEM.exec(l)[1].length <= indent.length + 1 && /\d/.test(ITEM.exec(l)[2]) !== ordered;
      const belongs = l => (ITEM.test(l) && !other(l)) || /^ {2,}\S/.test(l);
      take('list', (l, at) => belongs(l) || (!l.trim() && at + 1 < lines.length && belongs(lines[at + 1])) ||
                              (l.trim() && lines[at - 1].trim() && !other(l) && !FENCE.test(l) && !HEADING.test(l)));
    } else if (line.includes('|') && i + 1 < lines.length && TABLE_RULE.test(lines[i + 1]) && lines[i + 1].includes('-')) {
      take('table', l => l.includes('|'));
    } else {
      take('paragraph', l => l.trim() && !FENCE.test(l) && !HEADING.test(l) && !RULE.test(l) && !/^ {0,3}>/.test(l) && !ITEM.test(l));
    }
  }
  return found;
}

function code(block) {
  const text = block.lines.map(l => l.slice(Math.min(block.indent, l.search(/\S|$/)))).join('\n');
  const copy = element('button', ['Copy'], {type: 'button', class: 'copy', 'aria-label': 'Copy this code'});
  copy.addEventListener('click', async () => {
    await copyText(text);
    copy.textContent = 'Copied';
    setTimeout(() => copy.textContent = 'Copy', 1200);
  });
  const head = element('div', [element('span', [block.language || 'text']), copy], {class: 'code-head'});
  return element('div', [head, element('pre', [element('code', highlight(text, block.language))], {tabindex: '0'})], {class: 'code'});
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
    return element('li', tight ? [...inline(inner[0].lines.join('\n')), ...inner.slice(1).map(render)] : inner.map(render));
  });
  return element(ordered ? 'ol' : 'ul', nodes, ordered && parseInt(first[2]) !== 1 ? {start: parseInt(first[2])} : {});
}

function table(lines) {
  const cells = line => line.trim().replace(/^\||\|$/g, '').split(/(?<!\\)\|/).map(c => c.trim().replace(/\\\|/g, '|'));
  const align = cells(lines[1]).map(c => c.endsWith(':') ? (c.startsWith(':') ? 'center' : 'right') : '');
  const row = (line, tag) => element('tr', cells(line).map((c, i) => element(tag, inline(c), align[i] ? {class: align[i]} : {})));
  const body = element('tbody', lines.slice(2).map(l => row(l, 'td')));
  return element('div', [element('table', [element('thead', [row(lines[0], 'th')]), body])], {class: 'table'});
}

export function render(block) {
  const text = block.lines.join('\n');
  switch (block.kind) {
    case 'code': return code(block);
    case 'rule': return element('hr');
    case 'heading': {
      const [, marks, title] = HEADING.exec(text);
      return element(`h${Math.min(marks.length + 1, 6)}`, inline(title));
    }
    case 'quote': return element('blockquote', blocks(block.lines.map(l => l.replace(/^ {0,3}> ?/, '')).join('\n')).map(render));
    case 'list': return list(block.lines);
    case 'table': return table(block.lines);
    default: return element('p', inline(text));
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
  }
}
