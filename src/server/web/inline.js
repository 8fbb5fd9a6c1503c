// Inline Markdown: emphasis, code, links, formulas. Links may use only http, https and mailto. Pictures become links,
// so a text cannot make the browser load anything.
import {make} from '/dom.js';
import {formula} from '/math.js';

// A formula, or its source text if the formula does not parse.
export const maths = (source, text, display) => [formula(text, display) ?? source];
const strong = text => make('strong', {}, ...inline(text));
const em = text => make('em', {}, ...inline(text));

const RULES = [
  [/^\\\(([\s\S]+?)\\\)/, m => maths(m[0], m[1], false)],
  [/^\\\[([\s\S]+?)\\\]/, m => maths(m[0], m[1], true)],
  [/^\$\$([^$]+)\$\$/, m => maths(m[0], m[1], true)],
  [/^\$(?=[^\s$])((?:[^$\\]|\\[\s\S])+?)(?<!\s)\$(?!\d)/, m => maths(m[0], m[1], false)],  // $5 and $10 are no formula
  [/^\\([\\`*_{}[\]()#+\-.!|~<>$])/, m => [m[1]]],
  [/^(`+)([\s\S]*?[^`])\1(?!`)/, m => [make('code', {}, m[2].replace(/^ (.*) $/, '$1'))]],
  [/^\[\^([^\]\s]{1,40})\](?![(:])/, m => [noteLink(m[1])]],
  [/^!\[([^\]]*)\]\(((?:[^()\s]|\([^()\s]*\))+)(?:\s[^)]*)?\)/, m => link(m[2], [m[1] || m[2]])],  // a target may hold (a pair)
  [/^\[([^\]]+)\]\(((?:[^()\s]|\([^()\s]*\))+)(?:\s+"[^"]*")?\)/, m => link(m[2], inline(m[1]))],
  [/^<((?:https?:\/\/|mailto:)[^\s>]+)>/, m => link(m[1], [m[1]])],
  [/^https?:\/\/(?:[^\s<>()\]]|\([^\s<>()\]]*\))*(?:[^\s<>()\].,:;!?'"*_]|\([^\s<>()\]]*\))/, m => link(m[0], [m[0]])],
  [/^\*\*\*(?=[^\s*])([\s\S]*?[^\s*])\*\*\*(?!\*)/, m => [make('em', {}, strong(m[1]))]],
  [/^___(?=[^\s_])([\s\S]*?[^\s_])___(?!\w)/, m => [make('em', {}, strong(m[1]))]],
  [/^\*(\*\*[^\s*][^*]*\*\*[^*]*[^\s*])\*(?!\*)/, m => [em(m[1])]],       // ***a** b*
  [/^\*\*(\*[^\s*][^*]*\*[^*]*[^\s*])\*\*(?!\*)/, m => [strong(m[1])]],  // ***a* b**
  [/^\*\*(?=\S)([\s\S]*?\S)\*\*(?!\*)/, m => [strong(m[1])]],
  [/^__(?=\S)([\s\S]*?\S)__(?!\w)/, m => [strong(m[1])]],
  [/^\*(?=[^\s*])([\s\S]*?[^\s*])\*(?!\*)/, m => [em(m[1])]],
  [/^_(?=[^\s_])([\s\S]*?[^\s_])_(?!\w)/, m => [em(m[1])]],
  [/^~~(?=\S)([\s\S]*?\S)~~/, m => [make('del', {}, ...inline(m[1]))]],
  [/^<br *\/?>\n?/i, () => [make('br')]],  // the one tag that models write in tables
  [/^\\?\n/, () => [make('br')]],
];

// A reference to a footnote, which the view switches on when the text has the note.
const noteLink = name => make('button', {type: 'button', class: 'note-ref', 'data-note': name, disabled: ''}, `[^${name}]`);

function link(target, children) {
  if (!/^(https?:|mailto:)/i.test(target)) return children;
  return [make('a', {href: target, target: '_blank', rel: 'noopener noreferrer'}, ...children)];
}

// The text as nodes and strings.
export function inline(text) {
  const nodes = [];
  let plain = '';
  for (let i = 0; i < text.length;) {
    // A quick test, because most characters cannot begin a rule.
    const quick = /[\\`!\[<h*_~$\n]/.test(text[i]) && !(text[i] === '_' && /\w/.test(text[i - 1] || ''));
    const rest = quick ? text.slice(i, i + 4000) : '';
    const rule = quick && RULES.map(([pattern, nodes]) => [pattern.exec(rest), nodes]).find(([match]) => match);
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
