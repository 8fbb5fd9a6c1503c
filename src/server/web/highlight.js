// Colours code: comments, strings, numbers, keywords and names of called functions. Each family of languages has one
// pattern. Unknown languages are treated as C-like, which is usually right.
import {make} from '/dom.js';

const words = text => new Set(text.split(' '));

const KEYWORDS = words(
  'abstract and as assert async await auto begin bool boolean break case catch char class const constexpr continue co_await co_return ' +
  'co_yield def default del delete do double elif else elsif end enum except explicit export extends extern false False final finally ' +
  'float fn for foreach from func function global go goto if impl implements import in inline instanceof int interface is lambda let ' +
  'long loop match mod module move mut namespace new nil None nonlocal not null nullptr operator or override package pass private ' +
  'protected pub public raise ref require return self Self short signed sizeof static string struct super switch template then this ' +
  'throw throws trait true True try type typedef typename union unless unsafe unsigned until use using var virtual void volatile when ' +
  'where while with yield');
const SQL = words(
  'select from where insert into values update set delete create table drop alter index join left right inner outer on group by order ' +
  'having limit offset as and or not null is in like between distinct union all primary key foreign references default case when then ' +
  'else end exists count sum avg min max');

const STRING = String.raw`"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?`;
const NUMBER = String.raw`\b(?:0[xX][\da-fA-F_]+|0[bB][01_]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\w*\b`;
const NAME = String.raw`[A-Za-z_$][\w$]*`;
const rules = (comment, string) => new RegExp(`(?<comment>${comment})|(?<string>${string})|(?<number>${NUMBER})|(?<name>${NAME})`, 'g');

const C_LIKE = rules(String.raw`\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`, STRING + '|`(?:\\\\.|[^`\\\\])*`?');
const HASH = rules(String.raw`#[^\n]*`, String.raw`"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|` + STRING);
const DASHES = rules(String.raw`--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`, STRING);
const MARKUP = new RegExp(String.raw`(?<comment><!--[\s\S]*?(?:-->|$))|(?<string>"[^"]*"?)|(?<keyword><\/?[\w:-]+|\/?>)`, 'g');

const FAMILIES = {
  python: HASH, py: HASH, sh: HASH, bash: HASH, shell: HASH, zsh: HASH, ruby: HASH, rb: HASH, yaml: HASH, yml: HASH, toml: HASH,
  makefile: HASH, make: HASH, cmake: HASH, dockerfile: HASH, perl: HASH, r: HASH, julia: HASH,
  sql: DASHES, lua: DASHES, haskell: DASHES, hs: DASHES,
  html: MARKUP, xml: MARKUP, svg: MARKUP, vue: MARKUP,
};
const PLAIN = words('text txt plain output console markdown md'), DIFFS = words('diff patch udiff');

function kind(groups, text, end, language) {
  if (!groups.name) return Object.keys(groups).find(k => groups[k] !== undefined);
  if (language === 'sql' ? SQL.has(groups.name.toLowerCase()) : KEYWORDS.has(groups.name)) return 'keyword';
  return text[end] === '(' ? 'call' : null;
}

// A patch is coloured by lines.
const DIFF_LINES = [[/^(?:diff |index |--- |\+\+\+ |\\ )/, 'comment'], [/^@@/, 'keyword'], [/^\+/, 'added'], [/^-/, 'removed']];

function highlightDiff(text) {
  return text.split(/(?<=\n)/).map(line => {
    const kind = DIFF_LINES.find(([pattern]) => pattern.test(line))?.[1];
    return kind ? make('span', {class: 't-' + kind}, line) : line;
  });
}

// The text as nodes: strings, and spans with a class.
export function highlight(text, language = '') {
  language = language.toLowerCase();
  if (PLAIN.has(language) || !language || text.length > 200000) return [text];
  if (DIFFS.has(language)) return highlightDiff(text);
  const nodes = [];
  let done = 0;
  for (const match of text.matchAll(FAMILIES[language] || C_LIKE)) {
    const end = match.index + match[0].length;
    const what = kind(match.groups, text, end, language);
    if (!what) continue;
    if (match.index > done) nodes.push(text.slice(done, match.index));
    nodes.push(make('span', {class: 't-' + what}, match[0]));
    done = end;
  }
  if (done < text.length) nodes.push(text.slice(done));
  return nodes;
}
