// Converts LaTeX formulas to MathML, which browsers render and screen readers read. Supports the subset that models
// write. An unknown command is shown as its source text, and formula() returns null if the text does not parse, so
// nothing is lost.
import {ACCENTS, FUNCTIONS, INTEGRALS, LARGE, LETTERS, LIMITS, OPERATORS, SPACES, UNDER_ACCENTS} from '/math_symbols.js';

const MAX_DEPTH = 100;
const TOKEN = /\\(?:(?:operatorname|tag)\*|[a-zA-Z]+|[\s\S])|\d+(?:\.\d+)?|\s+|[\s\S]/gu;
const FENCES = {pmatrix: '()', bmatrix: '[]', Bmatrix: '{}', vmatrix: '||', Vmatrix: '‖‖', cases: '{'};
const TABLES = ['matrix', 'smallmatrix', 'array', 'aligned', 'align', 'alignat', 'gather', 'gathered', 'split', 'equation', 'eqnarray',
                'multline', ...Object.keys(FENCES)];
const TEXTS = ['text', 'textrm', 'textbf', 'textit', 'mbox', 'operatorname', 'mathrm', 'rm'];
// The first characters of Unicode alphabets: capitals, small letters, digits.
const ALPHABETS = {
  mathbf: [0x1d400, 0x1d41a, 0x1d7ce], boldsymbol: [0x1d468, 0x1d482, 0x1d7ce], bm: [0x1d468, 0x1d482, 0x1d7ce],
  mathbb: [0x1d538, 0x1d552, 0x1d7d8], mathcal: [0x1d49c, 0x1d4b6], mathscr: [0x1d49c, 0x1d4b6], mathfrak: [0x1d504, 0x1d51e],
  mathsf: [0x1d5a0, 0x1d5ba, 0x1d7e2], mathtt: [0x1d670, 0x1d68a, 0x1d7f6],
};
// Letters that were in Unicode before these alphabets, at other places.
const OLDER = {
  mathbb: {C: 'ℂ', H: 'ℍ', N: 'ℕ', P: 'ℙ', Q: 'ℚ', R: 'ℝ', Z: 'ℤ'},
  mathcal: {B: 'ℬ', E: 'ℰ', F: 'ℱ', H: 'ℋ', I: 'ℐ', L: 'ℒ', M: 'ℳ', R: 'ℛ', e: 'ℯ', g: 'ℊ', o: 'ℴ'},
  mathfrak: {C: 'ℭ', H: 'ℌ', I: 'ℑ', R: 'ℜ', Z: 'ℨ'},
};
OLDER.mathscr = OLDER.mathcal;

function ml(tag, children = [], attributes = {}) {
  const node = document.createElementNS('http://www.w3.org/1998/Math/MathML', tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const row = nodes => nodes.length === 1 ? nodes[0] : ml('mrow', nodes);
const operator = text => ml('mo', [text], '()[]{}|‖⟨⟩⌊⌋⌈⌉/'.includes(text) ? {stretchy: 'false'} : {});
const name = text => ml('mi', [text], text.length === 1 ? {mathvariant: 'normal'} : {});
const stretched = text => ml('mo', [text], {stretchy: 'true', fence: 'true'});

function inAlphabet(font, text) {
  const [capital, small, digit] = ALPHABETS[font];
  const letter = c => {
    const from = (base, first) => String.fromCodePoint(base + c.charCodeAt(0) - first.charCodeAt(0));
    if (OLDER[font]?.[c]) return OLDER[font][c];
    if (/[A-Z]/.test(c)) return from(capital, 'A');
    if (/[a-z]/.test(c)) return from(small, 'a');
    return /\d/.test(c) && digit ? from(digit, '0') : c;
  };
  return [...text].map(letter).join('');
}

class Reader {
  constructor(text, display) {
    this.tokens = text.match(TOKEN) ?? [];
    this.at = 0;
    this.depth = 0;
    this.display = display;
  }

  peek() {
    while (/^\s/.test(this.tokens[this.at] ?? '')) ++this.at;
    return this.tokens[this.at];
  }

  next() {
    const token = this.peek();
    if (token === undefined) throw new Error('the formula ends too early');
    ++this.at;
    return token;
  }

  expect(token) {
    if (this.next() !== token) throw new Error(`${token} is missing`);
  }

  // The nodes up to one of the tokens in `ends`, which is not consumed. undefined is the end of the formula.
  nodes(...ends) {
    if (++this.depth > MAX_DEPTH) throw new Error('the formula is nested too deeply');
    const found = [];
    while (!ends.includes(this.peek())) {
      if (this.peek() === undefined) throw new Error(`${ends[0]} is missing`);
      found.push(this.scripted());
    }
    --this.depth;
    return found;
  }

  // One argument: a group in braces, a digit, or the next atom.
  argument() {
    const token = this.peek();
    if (token === '{') return row(this.group());
    if (!/^\d./.test(token ?? '')) return this.atom();
    this.tokens[this.at] = token.slice(1);
    return ml('mn', [token[0]]);
  }

  group() {
    this.expect('{');
    const found = this.nodes('}');
    this.expect('}');
    return found;
  }

  // The characters of a group or of the next token, with their spaces.
  plain() {
    if (this.peek() !== '{') return this.next();
    let text = '', open = 0;
    do {
      const token = this.tokens[this.at++];
      if (token === undefined) throw new Error('} is missing');
      if (token === '{') open += 1;
      else if (token === '}') open -= 1;
      else text += /^\\[^a-zA-Z]/.test(token) ? token.slice(1) : token;
    } while (open > 0);
    return text;
  }

  option() {
    if (this.peek() !== '[') return null;
    this.next();
    const found = this.nodes(']');
    this.expect(']');
    return row(found);
  }

  // An atom with its limits, subscripts, superscripts and primes.
  scripted() {
    const begins = this.peek();
    const base = ['^', '_', '\''].includes(begins) ? ml('mrow') : this.atom();
    let below = null, above = null, limits = base.limits && this.display;
    for (;;) {
      const token = this.peek();
      if (token === '\\limits' || token === '\\nolimits') {
        this.next();
        limits = token === '\\limits';
      } else if (token === '_' && !below) {
        this.next();
        below = this.argument();
      } else if (token === '^' && !above) {
        this.next();
        above = this.argument();
      } else if (token === '\'' && !above) {
        let primes = '';
        while (this.peek() === '\'') primes += this.next() && '′';
        above = operator(primes);
      } else if (token === '_' || token === '^') {
        throw new Error('there are two scripts in one place');
      } else {
        break;
      }
    }
    const kind = limits ? ['munder', 'mover', 'munderover'] : ['msub', 'msup', 'msubsup'];
    if (below && above) return ml(kind[2], [base, below, above]);
    if (below || above) return ml(below ? kind[0] : kind[1], [base, below ?? above]);
    return base;
  }

  atom() {
    if (++this.depth > MAX_DEPTH) throw new Error('the formula is nested too deeply');
    const token = this.next();
    let made;
    if (token === '{') {
      made = ml('mrow', this.nodes('}'));
      this.expect('}');
    } else if (['}', '&', '\\\\'].includes(token)) {
      throw new Error(`${token} has nothing to end`);
    } else if (token[0] === '\\') {
      made = this.command(token.slice(1));
    } else if (/^\d/.test(token)) {
      made = ml('mn', [token]);
    } else if (token === '~') {
      made = ml('mspace', [], {width: '.25em'});
    } else {
      made = /^\p{L}/u.test(token) ? ml('mi', [token]) : operator(token === '-' ? '−' : token);
    }
    --this.depth;
    return made;
  }

  command(word) {
    if (LETTERS.has(word)) return ml('mi', [LETTERS.get(word)], /^[A-Z]/.test(word) ? {mathvariant: 'normal'} : {});
    if (LARGE.has(word)) return Object.assign(operator(LARGE.get(word)), {limits: true});
    if (INTEGRALS.has(word)) return operator(INTEGRALS.get(word));
    if (OPERATORS.has(word)) return operator(OPERATORS.get(word));
    if (FUNCTIONS.has(word)) return name(word);
    if (LIMITS.has(word)) return Object.assign(name(word.replace(/^(lim|arg)(?=.)/, '$1 ')), {limits: true});
    if (SPACES.has(word)) return ml('mspace', [], {width: SPACES.get(word) + 'em'});
    if (ALPHABETS[word]) return this.letters(word);
    if (TEXTS.includes(word)) return this.words(word);
    if (ACCENTS.has(word)) return ml('mover', [this.argument(), operator(ACCENTS.get(word))], {accent: 'true'});
    if (UNDER_ACCENTS.has(word)) return ml('munder', [this.argument(), operator(UNDER_ACCENTS.get(word))], {accentunder: 'true'});
    return this.layout(word);
  }

  // Letters of an alphabet. Commands inside keep their own style.
  letters(font) {
    const begin = this.at, text = this.plain();
    if (!text.includes('\\')) return ml('mi', [inAlphabet(font, text)], {mathvariant: 'normal'});
    this.at = begin;
    return this.argument();
  }

  words(word) {
    const limits = word.endsWith('*'), text = this.plain();
    return word.startsWith('operatorname') || word.startsWith('math') ? Object.assign(name(text), {limits}) : ml('mtext', [text.replace(/^\s|\s$/g, '\u00a0')]);
  }

  layout(word) {
    switch (word) {
      case 'frac': case 'dfrac': case 'tfrac': case 'cfrac': return ml('mfrac', [this.argument(), this.argument()]);
      case 'binom': case 'dbinom': case 'tbinom':
        return row([stretched('('), ml('mfrac', [this.argument(), this.argument()], {linethickness: '0'}), stretched(')')]);
      case 'sqrt': {
        const degree = this.option(), inner = this.argument();
        return degree ? ml('mroot', [inner, degree]) : ml('msqrt', [inner]);
      }
      case 'overset': case 'stackrel': {
        const above = this.argument();
        return ml('mover', [this.argument(), above]);
      }
      case 'underset': {
        const below = this.argument();
        return ml('munder', [this.argument(), below]);
      }
      case 'boxed': case 'overline': case 'underline': return ml('mrow', [this.argument()], {class: word});
      case 'not': return operator(this.argument().textContent + '\u0338');
      case 'pmod': return row([operator('('), name('mod'), ml('mspace', [], {width: '.3em'}), this.argument(), operator(')')]);
      case 'left': return this.fenced();
      case 'begin': return this.table();
      case 'displaystyle': case 'textstyle': case 'nonumber': case 'notag': case 'limits': case 'nolimits': case 'hline': return ml('mrow');
      case 'big': case 'Big': case 'bigg': case 'Bigg': case 'bigl': case 'bigr': case 'Bigl': case 'Bigr': case 'middle':
        return stretched(this.delimiter());
      case 'tag': case 'tag*': return ml('mtext', [`  (${this.plain()})`]);
      default: return this.unknown(word);
    }
  }

  // The source text of a command and its groups.
  unknown(word) {
    const begin = this.at;
    while (this.peek() === '{') this.plain();
    return ml('mtext', ['\\' + word + this.tokens.slice(begin, this.at).join('').trimEnd()], {class: 'unknown'});
  }

  delimiter() {
    const token = this.next();
    if (token === '.') return '';
    const text = token[0] === '\\' ? OPERATORS.get(token.slice(1)) : token;
    if (!text || text.length > 1) throw new Error('a delimiter is missing');
    return text;
  }

  fenced() {
    const open = this.delimiter(), inner = this.nodes('\\right');
    this.expect('\\right');
    return ml('mrow', [stretched(open), ...inner, stretched(this.delimiter())]);
  }

  // Rows of cells up to `end`, which is consumed.
  rows(end) {
    const rows = [[]];
    for (;;) {
      rows.at(-1).push(this.nodes('&', '\\\\', end));
      const token = this.peek();
      if (token !== undefined) this.next();
      if (token === end) break;
      if (token === '\\\\') rows.push([]);
    }
    if (rows.length > 1 && rows.at(-1).every(cell => !cell.length)) rows.pop();
    return rows;
  }

  table() {
    const kind = this.plain(), base = kind.replace(/\*$/, '');
    if (!TABLES.includes(base)) throw new Error(`the environment ${kind} is unknown`);
    if (base === 'array' || base === 'alignat') this.plain();  // the alignment or the number of columns
    const rows = this.rows('\\end');
    if (this.plain() !== kind) throw new Error(`\\end{${kind}} is missing`);
    const [open, close] = FENCES[base] ?? '', body = table(rows, base);
    return open ? ml('mrow', [stretched(open), body, ...(close ? [stretched(close)] : [])]) : body;
  }
}

function table(rows, kind) {
  const aligned = /^(align|split|eqn)/.test(kind), side = kind === 'cases' ? 'left' : aligned ? 'aligned' : '';
  const attributes = {...(side && {class: side}), ...(aligned && {displaystyle: 'true'})};
  return ml('mtable', rows.map(cells => ml('mtr', cells.map(nodes => ml('mtd', nodes)))), attributes);
}

// The formula as a <math> element, or null if the text does not parse.
export function formula(text, display) {
  try {
    const rows = new Reader(text, display).rows(undefined), plain = rows.length === 1 && rows[0].length === 1;
    if (plain && !rows[0][0].length) return null;
    const body = plain ? ml('mrow', rows[0][0]) : table(rows, 'aligned');
    const source = ml('annotation', [text.trim()], {encoding: 'application/x-tex'});
    return ml('math', [ml('semantics', [body, source])], display ? {display: 'block'} : {});
  } catch {
    return null;
  }
}
