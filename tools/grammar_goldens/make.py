#!/usr/bin/env python3
"""Writes tests/data/grammars/{gbnf,lark}.json: grammars, texts, and the verdict of other programs on each text.

    make.py FOLDER         needs the packages xgrammar (GBNF) and lark (Lark, its Earley parser with all lexings)

Each entry: {"grammar", "texts": [[text, whether it belongs to the grammar, bytes that can be read]]}. The bytes are -1
if the oracle does not tell (lark). The texts are members written by hand, and variants with characters lost, doubled,
swapped or replaced, with a fixed seed.
"""
import json
import pathlib
import random
import sys

GBNF = {
    r'''root ::= object
value ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws (string ":" ws value ("," ws string ":" ws value)*)? "}" ws
array ::= "[" ws (value ("," ws value)*)? "]" ws
string ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}))* "\"" ws
number ::= "-"? ([0-9] | [1-9] [0-9]{0,15}) ("." [0-9]+)? ([eE] [-+]? [0-9]{1,15})? ws
ws ::= "" | " " | "\n" [ \t]{0,20}
''': ['{}', '{"a": [1, -2.5e10, {"b": null}], "c\\u00e9": "x\\n"}', '{"é😀": [true, false, []]}', '[1]'],
    r'''# chess moves
root ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n")+
move ::= (pawn | nonpawn | castle) [+#]?
nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
castle ::= "O-O" "-O"?
''': ['1. e4 e5\n2. Nf3 Nc6\n', '1. e4 e5\n2. O-O O-O-O+\n3. exd8=Q Rxd8#\n'],
    r'''root ::= (expr "=" ws term "\n")+
expr ::= term ([-+*/] term)*
term ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num ::= [0-9]+ ws
ws ::= [ \t\n]*
''': ['x=1\n', '(a + 2) * b1=3\n1=1\n', '((a))=(b)\n'],
    'root ::= item{2,4} tail{3} "."{2,}\nitem ::= "<" inner? ">"\ninner ::= item | "x"\ntail ::= "ab" | "a" | "b"\n':
        ['<><>aab..', '<<x>><<<>>><x>abab ab..', '<><><><>aba...', '<><><><><>aba..'],
    'root ::= [\\u00e0-\\u00ff\\U0001F600-\\U0001F64F]+ [^a-z]* "\\x41" [\\u0000-\\U0010FFFF] \n': ['é😀A!', 'àA😀', 'ÿ123Aé', 'éaA!'],
    'root ::= s\ns ::= "a" s "a" | "b" s "b" | "a" | "b" | ""\n': ['abba', 'ababa', 'aabbaa', 'bab'],
    'root ::= "if " root (" else " root)? | "go" | blocks\nblocks ::= ("[" root "]")+\n':
        ['if go', 'if if go else go', 'if [go][if go] else [[go]]', 'if if if go else go else go'],
    'root ::= date | name\ndate ::= year "-" month "-" day\nyear ::= [0-9]{4}\nmonth ::= "0" [1-9] | "1" [0-2]\n'
    'day ::= "0" [1-9] | [12] [0-9] | "3" [01]\nname ::= (letter | digit)+ ("-" (letter | digit)+)*\n'
    'letter ::= [A-Za-z]\ndigit ::= [0-9]\n': ['2024-02-29', '2024-13-01', 'a-b-3', '1999-1', '-a'],
}

LARK = {
    r'''?start: sum | NAME "=" sum -> assign
?sum: product | sum "+" product -> add | sum "-" product -> sub
?product: atom | product "*" atom -> mul | product "/" atom -> div
?atom: NUMBER -> number | "-" atom -> neg | NAME -> var | "(" sum ")"
%import common.CNAME -> NAME
%import common.NUMBER
%import common.WS_INLINE
%ignore WS_INLINE
''': ['x = 1 + 2.5 * (3 - y)', '1-2-3', '- ( a ) / 2e5', '.5+a1', 'a b'],
    r'''// JSON
?start: value
?value: object | array | string | SIGNED_NUMBER -> number | "true" -> true | "false" -> false | "null" -> null
array: "[" [value ("," value)*] "]"
object: "{" [pair ("," pair)*] "}"
pair: string ":" value
string: ESCAPED_STRING
%import common.ESCAPED_STRING
%import common.SIGNED_NUMBER
%import common.WS
%ignore WS
''': ['{"a": [1, -2.5], "b": {}}', ' [true , null]\n', '"x\\"y"', '[1,]'],
    r'''start: ("select"i column_list "from"i CNAME [where]) ";"?
column_list: "*" | CNAME ("," CNAME)*
where: "where"i CNAME OP (INT | STRING)
OP: "<" "="? | ">" "="? | "="
STRING: "'" /[^']/* "'"
%import common (CNAME, INT, WS)
%ignore WS
%ignore /--[^\n]*/
''': ["SELECT * from t", "select a, b FROM t where a >= 5;", "select a from t WHERE b = 'x y' -- c\n;", "select from t"],
    r'''start: word~2..3 ("," word)~1 TAIL?
word: LETTER+ | DIGITS
DIGITS: "0".."9"+
LETTER: /[a-z]/ | "É".."Ö"
TAIL.2: "end"
      | "stop"   // or
''': ['abc,d', 'a1b,22end', 'ÉÖ,astop', 'a', 'ab12x,y'],
    'start: a | b\na: "x" a "y" | "x" "y"\nb: b "x" | "x"\n': ['xxyy', 'xy', 'xxx', 'xxyyy', 'x'],
    'start: /a.b/s /[.]c/ "d\\n\\x41\\u00e9"\n': ['axb.cd\nAé', 'a\nb.cd\nAé', 'axbxcd\nAé'],
}


def mutations(rng, text, alphabet):
    for _ in range(12):
        chars = list(text)
        for _ in range(rng.choice([1, 1, 2])):
            at = rng.randrange(len(chars) + 1)
            kind = rng.randrange(4)
            if kind == 0:
                chars[at:at + 1] = []
            elif kind == 1:
                chars.insert(at, rng.choice(alphabet))
            elif kind == 2:
                chars[at:at + 1] = [rng.choice(alphabet)]
            else:
                chars[at:at] = chars[max(0, at - 3):at]
        yield "".join(chars)


def texts_of(rng, members):
    alphabet = sorted(set("".join(members)))
    texts = dict.fromkeys(members)
    for member in members:
        texts.update(dict.fromkeys(mutations(rng, member, alphabet)))
    return list(texts)


def xgrammar_oracle(grammar):
    import xgrammar as xgr
    vocabulary = [bytes([i]) for i in range(256)] + ["</s>"]
    info = xgr.TokenizerInfo(vocabulary, vocab_type=xgr.VocabType.RAW, stop_token_ids=[256])
    compiled = xgr.GrammarCompiler(info).compile_grammar(grammar)

    def ask(text):
        matcher = xgr.GrammarMatcher(compiled)
        for n, byte in enumerate(text.encode()):
            if not matcher.accept_token(byte):
                return [text, False, n]
        return [text, matcher.accept_token(256), len(text.encode())]
    return ask


def lark_oracle(grammar):
    import lark
    parser = lark.Lark(grammar, parser="earley", lexer="dynamic_complete")

    def ask(text):
        try:
            parser.parse(text)
            return [text, True, len(text.encode())]
        except lark.exceptions.UnexpectedInput:
            return [text, False, -1]
    return ask


def main():
    folder = pathlib.Path(sys.argv[1])
    for name, grammars, oracle in [("gbnf", GBNF, xgrammar_oracle), ("lark", LARK, lark_oracle)]:
        rng = random.Random(18)
        entries = []
        for grammar, members in grammars.items():
            ask = oracle(grammar)
            entries.append({"grammar": grammar, "texts": [ask(text) for text in texts_of(rng, members)]})
        lines = []
        for entry in entries:
            texts = ",\n  ".join(json.dumps(text) for text in entry["texts"])
            lines.append('{"grammar": %s, "texts": [\n  %s]}' % (json.dumps(entry["grammar"]), texts))
        (folder / f"{name}.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
        print(name, sum(len(e["texts"]) for e in entries), "texts,", sum(t[1] for e in entries for t in e["texts"]), "members")


main()
