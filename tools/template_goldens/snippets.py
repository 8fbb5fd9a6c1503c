"""Small templates, written by hand, over VARIABLES. Their results are goldens of tests/text/jinja/template_golden_test."""

VARIABLES = {
    "s": "Hello World",
    "u": "héllo wörld 👋 ẞß İ ΣΑΣ",
    "e": "",
    "ws": " \t a b\u00a0\n",
    "n": 7,
    "z": 0,
    "m": -3,
    "f": 2.5,
    "big": 18446744073709551615,
    "t": True,
    "b": False,
    "no": None,
    "l": [3, 1, 2],
    "ls": ["b", "A", "c", "a"],
    "el": [],
    "d": {"a": 1, "B": {"c": [1, 2]}, "items": 5, "x y": "z"},
    "ed": {},
    "users": [
        {"name": "Ann", "age": 31, "tags": ["x", "y"], "on": True},
        {"name": "bob", "age": 25, "tags": [], "on": False},
        {"name": "Cy", "age": 31, "tags": ["y"], "on": True, "more": {"k": None}},
    ],
    "nested": [[1, 2], [3, [4, "q"]]],
}

SNIPPETS = r"""
{{ 1 + 2 * 3 - 4 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2**3**2 }}
{{ 7 / 2 }} {{ 6 / 2 }} {{ 1 / 3 }} {{ -7.5 // 2 }} {{ -0.0 // 2 }} {{ 0.0 // -2 }} {{ -7.5 % 2 }} {{ 7.5 % -2 }} {{ 1e16 }} {{ 1e15 }} {{ 123456789012345678.0 }} {{ 1e-5 }} {{ 0.0001 }}
{{ 1.0 }} {{ 1e300 * 1e10 }} {{ -1e300 * 1e10 }} {{ 0.1 + 0.2 }} {{ 1_000 }} {{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 1.5e3 }} {{ 5e-324 }} {{ 1.7976931348623157e308 }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 1 % 0 }}
{{ 1.0 % 0 }}
{{ 0 ** -1 }}
{{ -1 ** 2 }} {{ -n|abs }} {{ +n }} {{ - - n }} {{ -f }} {{ -t }} {{ +t }} {{ t + t }}
{{ -s }}
{{ s + 1 }}
{{ 1 + s }}
{{ l + (1,) }}
{{ l + [4] }} {{ (1,) + (2,) }} {{ [0] * 3 }} {{ 2 * (1, 2) }} {{ 'ab' * 3 }} {{ 3 * 'ab' }} {{ 'ab' * -1 }} {{ s * 0 }}
{{ d + d }}
{{ no + 1 }}
{{ missing + 1 }}
{{ 'a' + missing }}
{{ 'a' ~ 1 ~ 2.0 ~ none ~ true ~ missing ~ l }}
{{ "con" "cat" 'ena' 'ted' }} {{ 'it''s' }} {{ 'a\tb\n\x41\u00e9\\ \' \" \q \101' }}
{{ 1 == 1.0 }} {{ true == 1 }} {{ '1' == 1 }} {{ none == false }} {{ [1, 2] == [1, 2.0] }} {{ (1,) == [1] }} {{ {'a': 1} == {'a': 1.0} }} {{ missing == gone }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 3 > 2 >= 2 != 1 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 'é' > 'z' }} {{ 1 < 1.5 }} {{ 9007199254740993 > 9007199254740992.0 }}
{{ 1 < 'a' }}
{{ none < 1 }}
{{ [1] < (1,) }}
{{ d < d }}
{{ missing < 1 }}
{{ 'ell' in s }} {{ '' in e }} {{ 3 in l }} {{ 4 not in l }} {{ 'a' in d }} {{ 'z' in d }} {{ 1 in (1,) }} {{ 2 in range(5) }} {{ 7 in range(0, 20, 2) }} {{ 'a' in missing }}
{{ 1 in s }}
{{ missing in s }}
{{ 1 in 5 }}
{{ 1 in none }}
{{ [] in d }}
{{ not t }} {{ not e }} {{ not l }} {{ not none }} {{ not missing }} {{ not 0.0 }} {{ not not n }} {{ 1 and 2 }} {{ 0 or 'x' }} {{ e or none }} {{ n and e }}
{{ 'y' if t }} {{ 'y' if b }} {{ 'y' if b else 'n' }} {{ 1 if b else 2 if b else 3 }} {{ ('y' if b) is defined }}
{{ (1, 2) }} {{ 1, 2 }} {{ () }} {{ (1,) }} {{ [] }} {{ {} }} {{ [1, 'a', 2.5, none, true, [1], (2,), {'k': 'v'}] }} {{ {'a': 1, 2: 'b', none: 3, (1, 2): 4} }}
{{ {1: 'a', 1.0: 'b', true: 'c'} }} {{ {'a': 1, 'a': 2} }}
{{ {[]: 1} }}
{{ "it's" ~ ["it's", 'say "x"', 'both \' and "', 'tab\t', '\\', 'é\u200b\x00\x7f', '👋'] }}
{{ s[0] }} {{ s[-1] }} {{ u[1] }} {{ u[12] }} {{ s[99] }} {{ s['x'] is defined }} {{ l[0] }} {{ l[-1] }} {{ l[true] }} {{ l[5] is defined }} {{ l['0'] is defined }} {{ l[1.0] is defined }}
{{ s[1:4] }} {{ s[:-3] }} {{ s[::-1] }} {{ s[::2] }} {{ s[8:2:-2] }} {{ u[1:3] }} {{ u[::-1] }} {{ u[-6:] }} {{ l[1:] }} {{ l[::-1] }} {{ (1, 2, 3)[:2] }} {{ range(10)[2:8:3] }} {{ s[100:] }} {{ l[-100:100] }} {{ s[none:2] }}
{{ s[::0] }}
{{ s['a':] }}
{{ d[1:] }}
{{ no[1:] }}
{{ s[1.0:] }}
{{ s[missing:] }}
{{ missing[1:] }}
{{ d.a }} {{ d['a'] }} {{ d.B.c[1] }} {{ d['x y'] }} {{ d.zz is defined }} {{ d['items'] }} {{ d.items is callable }} {{ d.get('a') }} {{ d.get('q') }} {{ d.get('q', 9) }}
{{ d.zz.yy }}
{{ none.a is defined }} {{ n.a is defined }} {{ nested.1.1.0 }} {{ nested[1][1][1] }}
{{ missing.a }}
{{ missing() }}
{{ s() }}
{{ d.a() }}
{{ d.keys() }} {{ d.values() }} {{ d.items() }} {{ d.keys()|list }} {{ d.values()|list|length }} {{ d.items()|list }} {{ d.keys()|length }} {{ 'a' in d.keys() }} {{ d|items|list }} {{ d|list }}
{{ d.keys()[0] is defined }} {{ ed.items() }} {{ (d|items)|length }}
{{ s.upper() }} {{ u.upper() }} {{ s.lower() }} {{ u.lower() }} {{ 'hello wORLD it\'s'.title() }} {{ s.swapcase() }} {{ 'ﬁx ὈΔΥΣΣΕΎΣ'.title() }} {{ 'éa bé'.capitalize() }} {{ 'ß ŉ ﬃ'.upper() }} {{ 'ǆ'.title() }}
{{ '|' ~ ws.strip() ~ '|' ~ ws.lstrip() ~ '|' ~ ws.rstrip() ~ '|' }} {{ 'xxaxx'.strip('x') }} {{ 'abcba'.lstrip('ab') }} {{ 'abcba'.rstrip('ba') }} {{ 'éàaà'.strip('àé') }} {{ ' x '.strip(none) }}|
{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a b c d'.split(' ', 2) }} {{ 'a b c d'.split(none, 1) }} {{ 'a b  c d '.rsplit(none, 1) }} {{ 'a.b.c'.rsplit('.', 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'abc'.split('abc') }} {{ 'a b'.split(maxsplit=0) }} {{ 'aXXbXXc'.split(sep='XX') }}
{{ '  a b  c  '.split(none, 1) }} {{ ' a '.split(none, 0) }} {{ '  a b  c  '.rsplit(none, 1) }} {{ ' a b '.split(none, 2) }}
{{ 'a'.split('') }}
{{ 'a'.split(1) }}
{{ s.startswith('He') }} {{ s.startswith('lo', 3) }} {{ s.endswith('ld') }} {{ s.endswith(('x', 'rld')) }} {{ s.startswith('') }} {{ s.endswith('o', 0, 5) }} {{ s.startswith('', 99) }}
{{ s.startswith(1) }}
{{ s.replace('l', 'L') }} {{ s.replace('l', 'L', 1) }} {{ s.replace('', '-') }} {{ 'é'.replace('', '-') }} {{ ''.replace('', 'x') }} {{ s.replace('o', '') }} {{ 'aaa'.replace('aa', 'b') }} {{ 'abc'.replace('', '-', 2) }}
{{ s.find('o') }} {{ s.rfind('o') }} {{ s.find('q') }} {{ u.find('ö') }} {{ s.index('W') }} {{ s.count('l') }} {{ 'aaaa'.count('aa') }} {{ ''.count('') }} {{ 'éé'.count('') }} {{ s.find('o', 5) }} {{ s.find('o', -3, -1) }}
{{ s.index('q') }}
{{ '-'.join(['a', 'b']) }} {{ ','.join('abc') }} {{ ''.join([]) }} {{ 'x'.join({'a': 1, 'b': 2}) }}
{{ '-'.join([1]) }}
{{ 'ab'.center(7, '*') }} {{ 'ab'.center(6, '*') }} {{ 'abc'.center(6, '*') }} {{ 'a'.center(4, '*') }} {{ 'ab'.ljust(5, '.') }} {{ 'ab'.rjust(5, '.') }} {{ 'é'.rjust(3, '·') }} {{ '-4'.zfill(5) }} {{ '4'.zfill(3) }}
{{ 'abc'.partition('b') }} {{ 'abcbd'.rpartition('b') }} {{ 'abc'.partition('x') }} {{ 'abc'.rpartition('x') }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('bc') }} {{ 'abc'.removeprefix('x') }}
{{ 'a\nb\r\nc\rd\x0be\u2028f'.splitlines() }} {{ 'a\n'.splitlines(true) }} {{ ''.splitlines() }} {{ '\n'.splitlines() }}
{{ 'abc'.isalpha() }} {{ 'ab1'.isalnum() }} {{ '12'.isdigit() }} {{ ''.isdigit() }} {{ ' \t'.isspace() }} {{ 'aB'.islower() }} {{ 'ab!'.islower() }} {{ 'AB'.isupper() }} {{ 'Ab Cd'.istitle() }} {{ 'é'.isascii() }} {{ '\n'.isprintable() }} {{ 'Ωé'.isalpha() }}
{{ 'a{}b{}'.format(1, 'x') }} {{ '{1} {0}'.format('a', 'b') }} {{ '{k}'.format(k=3) }} {{ '{:>5}|{:<5}|{:^5}|{:05d}|{:.2f}|{:,}|{:x}|{:+d}|{:%}|{:e}'.format('a', 'b', 'c', 42, 3.14159, 1234567, 255, 5, 0.25, 12345.678) }} {{ '{{}}'.format() }} {{ '{!r:>6}'.format('é') }} {{ '{0[0]}{1[a]}{1.a}'.format(l, d) }} {{ '{:{}}|'.format('a', 4) }} {{ '{:*^9}'.format(n) }} {{ '{:g} {:g} {:.3}'.format(1e10, 0.5, 3.14159) }} {{ '{:b} {:o} {:#x} {:_}'.format(5, 8, 255, 1234567) }} {{ '{}'.format(f) }} {{ '{:6.1f}|{:<8}|{:08.2f}'.format(f, f, -f) }}
{{ '{}'.format() }}
{{ '{x}'.format(1) }}
{{ '{:d}'.format('a') }}
{{ '{'.format() }}
{{ '%s-%d-%5.2f-%x-%%-%r-%c' % (s, n, f, 255, 'q', 'z') }} {{ '%s' % n }} {{ '%s' % [1, 2] }} {{ '%(a)s %(B)s' % d }} {{ '%5s|%-5s|%05d|%+d|% d|%e|%g|%i' % ('a', 'b', 42, 5, 5, 12345.678, 0.0001, 3.9) }} {{ '%*d|%.3s' % (5, 42, 'abcdef') }} {{ '%s' % missing }} {{ 'x' % [] }} {{ '%o %X %#x' % (8, 255, 255) }} {{ '%.0f %.1f' % (2.5, 0.25) }}
{{ '%d' % 'a' }}
{{ '%s %s' % 'a' }}
{{ '%s' % (1, 2) }}
{{ 'x' % 1 }}
{{ '%q' % 1 }}
{{ l.index(1) }} {{ l.count(3) }} {{ l.copy() }} {{ (1, 2, 1).count(1) }} {{ (1, 2).index(2) }}
{{ l.index(99) }}
{{ s.__class__ }}
{{ l.__init__ }}
{{ d.__class__.__mro__ }}
{{ s['__class__'] }}
{{ s|attr('__class__') }}
{{ (s|attr('__class__')) is defined }} {{ s.__class__ is defined }} {{ d.clear is defined }}
{{ l.sort() }}
{{ d.popitem() }}
{{ s|length }} {{ u|length }} {{ l|length }} {{ d|length }} {{ missing|length }} {{ range(5)|length }} {{ l|count }}
{{ n|length }}
{{ none|length }}
{{ (l|map('string'))|length }}
{{ s|upper }} {{ s|lower }} {{ 'hELLO wORLD'|capitalize }} {{ "foo-bar (baz) it's {x} élan\tnew"|title }} {{ ws|trim }}| {{ 'xax'|trim('x') }} {{ n|upper }} {{ l|lower }} {{ none|upper }} {{ missing|upper }}
{{ s|replace('l', 'L') }} {{ s|replace('l', 'L', 2) }} {{ 123|replace(2, 'x') }} {{ s|center(20) }}| {{ s|string }} {{ l|string }} {{ n|string|length }} {{ missing|string }}|
{{ s|first }} {{ s|last }} {{ l|first }} {{ l|last }} {{ el|first }} {{ el|last }} {{ d|first }} {{ d|last }} {{ missing|first }} {{ range(3)|last }} {{ u|last }}
{{ n|first }}
{{ (l|map('abs'))|last }}
{{ l|join }} {{ l|join(', ') }} {{ 'abc'|join('-') }} {{ d|join(',') }} {{ users|join(', ', attribute='name') }} {{ [1, none, missing, true]|join('|') }} {{ missing|join('x') }}| {{ l|join(1) }}
{{ n|join }}
{{ none|join }}
{{ l|sort }} {{ l|sort(reverse=true) }} {{ ls|sort }} {{ ls|sort(case_sensitive=true) }} {{ users|sort(attribute='age')|map(attribute='name')|list }} {{ users|sort(attribute='age,name', reverse=true)|map(attribute='name')|join(',') }} {{ 'hello'|sort|join }} {{ [(2, 'a'), (1, 'z')]|sort }}
{{ [1, 'a']|sort }}
{{ [d, d]|sort }}
{{ d|dictsort }} {{ d|dictsort(true) }} {{ {'b': 1, 'a': 2}|dictsort(by='value') }} {{ {'b': 1, 'a': 2}|dictsort(reverse=true) }}
{{ {'b': 1, 1: 2}|dictsort }}
{{ l|dictsort }}
{{ l|reverse|list }} {{ s|reverse }} {{ u|reverse }} {{ d|reverse|list }} {{ range(3)|reverse|list }} {{ (l|map('abs')|reverse)|join }}
{{ n|reverse }}
{{ l|min }} {{ l|max }} {{ ls|min }} {{ ls|max(case_sensitive=true) }} {{ el|min is defined }} {{ users|max(attribute='age') }} {{ l|sum }} {{ users|sum(attribute='age') }} {{ [[1], [2]]|sum(start=[]) }} {{ el|sum }} {{ [0.1, 0.2]|sum }}
{{ ['a']|sum }}
{{ ['b', 'B', 'a', 1, 1.0]|unique|list }} {{ ['b', 'B']|unique(true)|list }} {{ users|unique(attribute='age')|map(attribute='name')|list }}
{{ [1, 2, 3, 4, 5]|batch(2)|list }} {{ [1, 2, 3]|batch(2, 'x')|list }} {{ [1, 2, 3, 4, 5]|slice(2)|list }} {{ [1, 2, 3]|slice(2, 'x')|list }} {{ range(7)|slice(3)|map('list')|list }}
{{ users|groupby('age') }} {% for g in users|groupby('age') %}{{ g.grouper }}:{{ g.list|map(attribute='name')|join('+') }} {% endfor %} {% for k, v in users|groupby('name') %}{{ k }}{{ v|length }}{% endfor %} {{ users|groupby('more.k', default='?')|map('first')|list }}
{{ users|map(attribute='name')|list }} {{ users|map(attribute='tags.0')|map('default', '-')|list }} {{ users|map(attribute='zip', default='none')|list }} {{ ls|map('upper')|join }} {{ l|map('string')|map('center', 3)|list }} {{ ['1', '2']|map('int')|sum }} {{ missing|map('upper')|list }} {{ none|map('upper')|list }} {{ users|map(attribute='more.k', default=0)|list }}
{{ users|selectattr('on')|map(attribute='name')|list }} {{ users|rejectattr('on')|map(attribute='name')|list }} {{ users|selectattr('age', 'gt', 30)|list|length }} {{ users|selectattr('name', 'equalto', 'bob')|map(attribute='age')|first }} {{ users|selectattr('more', 'defined')|list|length }} {{ users|selectattr('name', 'in', ['Ann', 'Cy'])|map(attribute='name')|join }} {{ l|select('odd')|list }} {{ l|reject('odd')|list }} {{ [0, 1, '', 'a', none]|select|list }} {{ [0, 1, '']|reject|list }} {{ l|select('>', 1)|list }} {{ l|select('divisibleby', 3)|list }} {{ none|select|list }}
{{ l|select('nope')|list }}
{{ l|map('nope')|list }}
{{ 'y' if l|select('gt', 99) else 'n' }} {{ 'y' if el|map('upper') else 'n' }} {{ 'y' if d.keys() else 'n' }} {{ 'y' if ed.keys() else 'n' }} {{ 'y' if range(0) else 'n' }}
{% set g = l|map('abs') %}{{ g|join }}/{{ g|join }} {{ (l|select)[0] is defined }} {{ (l|map('abs')) is iterable }} {{ (l|map('abs')) is sequence }}
{{ missing|default('x') }} {{ e|default('x') }}| {{ e|default('x', true) }} {{ none|default('x') }} {{ none|d('x', boolean=true) }} {{ missing|default }}| {{ d.q|default(d.a) }} {{ 0|d(1) }}
{{ '42'|int }} {{ '42.9'|int }} {{ 'x'|int }} {{ 'x'|int(7) }} {{ ' 42 '|int }} {{ '-3'|int }} {{ '1_000'|int }} {{ '0x1f'|int(base=16) }} {{ 'ff'|int(base=16) }} {{ 3.99|int }} {{ -3.99|int }} {{ true|int }} {{ none|int }} {{ l|int }} {{ '1e3'|int }} {{ ''|int }} {{ '٣'|length }} {{ 'inf'|int(-1) }}
{{ missing|int }}
{{ '3.5'|float }} {{ 'x'|float }} {{ 'x'|float(1.5) }} {{ 3|float }} {{ '1e3'|float }} {{ 'inf'|float }} {{ '-nan'|float }} {{ ' 2 '|float }} {{ none|float }} {{ '.5'|float }} {{ '1.'|float }}
{{ 2.5|round }} {{ 3.5|round }} {{ -2.5|round }} {{ 2.675|round(2) }} {{ 42.55|round(1, 'floor') }} {{ 42.55|round(1, 'ceil') }} {{ 42|round }} {{ 1234.5|round(-2) }} {{ 1234|round(-2) }} {{ 0.1|round(20) }} {{ 2.4|round(method='ceil') }} {{ 1e22|round }} {{ 5|round(method='floor') }}
{{ 1.5|round(1, 'no') }}
{{ s|round }}
{{ -3|abs }} {{ 2.5|abs }} {{ m|abs }} {{ true|abs }}
{{ s|abs }}
{{ 'a\nb\n\nc'|indent }} {{ 'a\nb'|indent(2, true) }} {{ 'a\n\nb'|indent(2, blank=true) }} {{ 'a\nb'|indent('> ') }} {{ ''|indent(2, true) }}| {{ 'a\n'|indent(2) }}|
{{ n|indent }}
{{ 'foo bar baz qux'|truncate(9) }} {{ 'foo bar baz qux'|truncate(9, true) }} {{ 'foo bar baz qux'|truncate(11) }} {{ 'foo bar baz qux'|truncate(11, false, '...', 0) }} {{ 'héllo wörld ünïcode'|truncate(8, end='…', leeway=0) }} {{ 'abcdefghijklmnop'|truncate(5) }}
{{ 'one two, three_four é'|wordcount }} {{ '%s is %d'|format('x', 3) }} {{ '%(a)s'|format(a=1) }} {{ s|list }} {{ d|list }} {{ missing|list }} {{ range(3)|list }}
{{ n|list }}
{{ d|tojson }} {{ users|tojson }} {{ s|tojson }} {{ u|tojson }} {{ none|tojson }} {{ true|tojson }} {{ f|tojson }} {{ 1e100|tojson }} {{ (1, 2)|tojson }} {{ el|tojson }} {{ ed|tojson }} {{ '<&>\'"\\/\n\t\x08\x0c\x01\x7f\u2028'|tojson }} {{ big|tojson }} {{ ('inf'|float)|tojson }}
{{ d|tojson(indent=2) }} {{ nested|tojson(indent=1) }} {{ el|tojson(indent=2) }} {{ d|tojson(indent=0) }} {{ l|tojson(indent='--') }}
{{ u|tojson(ensure_ascii=true) }} {{ u|tojson(true) }} {{ d|tojson(separators=(',', ':')) }} {{ d|tojson(sort_keys=true) }} {{ d|tojson(false, 2, [', ', '= ']) }} {{ {1: 'a', none: 'b', true: 'c', 1.5: 'd'}|tojson }} {{ {'b': 1, 'a': [{'d': 1, 'c': 2}]}|tojson(indent=2, sort_keys=true) }}
{{ missing|tojson }}
{{ [missing]|tojson }}
{{ range(3)|tojson }}
{{ d.keys()|tojson }}
{{ {(1, 2): 3}|tojson }}
{{ {'a': 1, 1: 2}|tojson(sort_keys=true) }}
{{ '<b>' | e }} {{ '<b>'|escape|escape }} {{ '<b>'|safe }} {{ ('<i>'|safe) + '<b>' }} {{ '<b>' + ('<i>'|safe) }} {{ '<b>' ~ ('<i>'|safe) }} {{ ('<i>'|safe) ~ '<b>' }} {{ ['<i>'|safe] }} {{ ('<i>'|safe) * 2 + '"' }} {{ ('<i>%s'|safe) % '<b>' }} {{ ('<i>'|safe).replace('i', '<') }} {{ ('<i> x'|safe).split() }} {{ ('<i>'|safe|upper) + '<' }} {{ ('<i>'|safe)[1:] + '<' }} {{ ('<i>'|safe|trim) + '<' }} {{ '<b>'|forceescape }} {{ ('x'|safe) is escaped }} {{ ('<'|safe)|string + '<' }} {{ ('<'|safe|tojson) + '<' }} {{ ('&'|safe).join(['<', '<'|safe]) }}
{{ 5 is odd }} {{ 4 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ -3 is odd }} {{ 2.0 is even }}
{{ s is odd }}
{{ 1 is divisibleby(0) }}
{{ s is string }} {{ n is string }} {{ n is number }} {{ f is number }} {{ t is number }} {{ n is integer }} {{ t is integer }} {{ f is integer }} {{ f is float }} {{ t is boolean }} {{ n is boolean }} {{ t is true }} {{ 1 is true }} {{ b is false }} {{ 0 is false }} {{ none is none }} {{ missing is none }} {{ missing is defined }} {{ missing is undefined }} {{ no is defined }}
{{ d is mapping }} {{ l is mapping }} {{ l is sequence }} {{ s is sequence }} {{ d is sequence }} {{ n is sequence }} {{ range(2) is sequence }} {{ missing is sequence }} {{ none is sequence }} {{ l is iterable }} {{ s is iterable }} {{ d is iterable }} {{ n is iterable }} {{ none is iterable }} {{ missing is iterable }} {{ d.keys() is sequence }} {{ (1,) is sequence }}
{{ 'abc' is lower }} {{ 'ABC' is upper }} {{ 'aB' is lower }} {{ '1' is lower }} {{ none is sameas none }} {{ 1 is sameas true }} {{ l is sameas l }} {{ l is sameas [3, 1, 2] }} {{ range is callable }} {{ s is callable }} {{ 'upper' is filter }} {{ 'nope' is filter }} {{ 'odd' is test }} {{ 1 is in l }} {{ 9 is not in l }} {{ 'a' is in 'abc' }}
{{ 3 is eq 3 }} {{ 3 is ne(4) }} {{ 3 is gt 2 }} {{ 3 is lessthan 2 }} {{ 3 is ge(3) }} {{ 3 is le 2 }} {{ 'a' is equalto 'a' }} {{ 1 is not none }} {{ s is not string }} {{ not s is string }}
{{ 1 is nope }}
{{ 1|nope }}
{% if false %}{{ 1|nope }}{% endif %}{{ 2 if true else (1|nope) }} {{ (1 is nope) if false else 3 }}
{% if true %}{{ 1|nope }}{% endif %}
{% if false %}{% for i in [1] %}{{ 1|nope }}{% endfor %}{% endif %}
{{ 3 is odd is even }}
{{ range(5)|list }} {{ range(2, 5)|list }} {{ range(10, 0, -3)|list }} {{ range(3) }} {{ range(0, 6, 2) }} {{ range(5)[1] }} {{ range(5)[-1] }} {{ range(3) == range(3) }} {{ range(0) == range(2, 1) }} {{ range(5, 1)|list }}
{{ range(1, 10, 0) }}
{{ range(200000) }}
{{ range('a') }}
{{ range(1.5) }}
{{ dict(a=1, b=2) }} {{ dict([('x', 1)]) }} {{ dict({'a': 1}, b=2) }} {{ dict() }}
{{ raise_exception('no') }}
{{ strftime_now('%Y-%m-%d %H:%M:%S %a %A %b %B %d %j %p %I %y %% %-d %e') }} {{ strftime_now('%d %b %Y') }} {{ strftime_now('%B %d, %Y') }} {{ strftime_now('') }} {{ strftime_now('%c|%x|%X|%D|%F|%T|%U|%w') }}
{% set x = 1 %}{{ x }}{% set x = x + 1 %}{{ x }}{% set a, b2 = 1, 'q' %}{{ a }}{{ b2 }}{% set (p, (q, r)) = (1, [2, 3]) %}{{ p }}{{ q }}{{ r }}
{% set a, b2 = 1 %}
{% set a, b2 = [1, 2, 3] %}
{% set x %}<{{ n }}>{% endset %}{{ x }}{{ x|length }}{% set y | upper | replace('A', '4') %}abc{% endset %}{{ y }}
{% set true = 1 %}
{% set 1 = 1 %}
{% set ns = namespace(a=1) %}{% for i in l %}{% set ns.a = ns.a + i %}{% set x = i %}{% endfor %}{{ ns.a }}{{ x is defined }}{{ ns.q is defined }}{{ ns['a'] }}
{% set ns = namespace({'k': 1}, z=2) %}{{ ns.k }}{{ ns.z }}{{ ns }}{{ ns is mapping }}{{ ns is iterable }}
{% set d.q = 1 %}
{% set q.x = 1 %}
{{ namespace(a=1)|tojson }}
{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a', 'b') }};{% endfor %}
{% for i in l %}{{ loop.nope is defined }}{% endfor %}{{ loop is defined }}
{% for i in l if i > 1 %}{{ i }}{{ loop.index }}/{{ loop.length }}{{ loop.nextitem }}{{ loop.last }};{% else %}none{% endfor %}|{% for i in l if i > 9 %}{{ i }}{% else %}none{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }},{% endfor %}{% for c in u %}{{ c }}.{% endfor %}
{% for a, b2 in [1] %}{% endfor %}
{% for a, b2 in [[1, 2, 3]] %}{% endfor %}
{% for a, (b2, c) in [[1, [2, 3]]] %}{{ a }}{{ b2 }}{{ c }}{% endfor %}{% for x in 1, 2 %}{{ x }}{% endfor %}{% for (a, b2) in ['xy'] %}{{ a }}{{ b2 }}{% endfor %}
{% for i in n %}{% endfor %}
{% for i in none %}{% endfor %}
{% for i in missing %}x{% else %}empty{% endfor %}
{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% for i in [] %}{% else %}{% for j in [1] %}{{ j }}{% endfor %}{% endfor %}{% for i in [1, 2] %}{% for j in [1, 2] %}{{ i }}{{ j }}{% if j == 1 %}{% continue %}{% endif %}{{ loop.index }}{% endfor %}{% endfor %}
{% break %}
{% for i in [1] %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}
{% for i in l %}{% set x %}{% if loop.first %}{% continue %}{% endif %}y{% endset %}{{ x }}{{ i }}{% endfor %}
{% for x in nested recursive %}[{{ loop.depth0 }}{% if x is iterable and x is not string %}{{ loop(x) }}{% else %}{{ x }}{% endif %}]{% endfor %}
{% for x in [1] %}{{ loop([2]) }}{% endfor %}
{% for x in [1, 1, 2, 2, 1] %}{% if loop.changed(x) %}{{ x }}{% endif %}{% endfor %}
{% for x in l %}{% set outer = loop %}{% for y in 'ab' %}{{ outer.index }}{{ loop.index }}{{ outer.last }} {% endfor %}{% endfor %}
{% set ns = namespace(on=true) %}{% for x in [1, 2, 3, 4] if ns.on %}{{ x }}{% if x == 2 %}{% set ns.on = false %}{% endif %}{% endfor %}
{% macro m(a, b2=2, c=a) %}{{ a }}{{ b2 }}{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c=9) }}{{ m(c=1, a=2) }}{{ m() }}{{ m(*[7, 8]) }}{{ m(**{'a': 5}) }}{{ m.name }}{{ m.arguments }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b2=2) }}
{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, x=4) }}{{ m() }}
{% macro m(a=1, b2) %}{% endmacro %}
{% macro m() %}{{ caller() }}|{{ caller(1, x=2) }}{% endmacro %}{% call(a='d', x='e') m() %}<{{ a }}{{ x }}{{ n }}>{% endcall %}
{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}{% call m() %}{% endcall %}
{% macro m() %}x{% endmacro %}{% call m() %}{% endcall %}
{% call s %}{% endcall %}
{% macro fact(k) %}{% if k < 2 %}1{% else %}{{ k * fact(k - 1)|int }}{% endif %}{% endmacro %}{{ fact(10) }}
{% macro a(k) %}{{ k }}{% if k %}{{ bb(k - 1) }}{% endif %}{% endmacro %}{% macro bb(k) %}b{{ a(k) }}{% endmacro %}{{ a(3) }}
{% set x = 1 %}{% macro m() %}{{ x }}{% set x = 5 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}{% set x = 2 %}{{ m() }}
{% for i in [1, 2] %}{% macro m() %}{{ i }}{{ n }}{% endmacro %}{{ m() }}{% endfor %}{{ m is defined }}
{% macro m(x) %}{{ x is string }}{{ x }}{% endmacro %}{{ m(m(1)) }}{{ m('a') + 'b' }}{{ m('q')|length }}
{% if n > 5 %}a{% elif n > 3 %}b{% else %}c{% endif %}{% if b %}a{% elif n > 3 %}b{% else %}c{% endif %}{% if b %}a{% elif b %}b{% else %}c{% endif %}{% if b %}x{% endif %}
{% if t %}{% set q = 1 %}{% endif %}{{ q }}{% for i in [1] %}{% set q = 2 %}{{ q }}{% endfor %}{{ q }}
{% with %}{% set w = 1 %}{{ w }}{% endwith %}{{ w is defined }}{% with a = 1, c = n %}{{ a }}{{ c }}{% endwith %}{% set a = 5 %}{% with a = 1, c = a %}{{ a }}{{ c }}{% endwith %}
{% filter upper %}a{{ s }}{% set q = 1 %}{% endfilter %}{{ q is defined }}{% filter replace('a', 'b')|upper %}aaa{% endfilter %}
{% generation %}x{{ n }}{% set q = 1 %}{% endgeneration %}{{ q is defined }}
{% raw %}{{ x }}{% y %}{# z #}{% endraw %}{# comment {{ no }} #}a{#- b -#} c
{{- '  a  ' -}}   b   {{- 'c' }}  {%- if t %}  d  {%- endif -%}  e
{% if t -%}   x   {%- endif %}   {%+ if t %} y {% endif +%}   z
{{ '%}' }}{{ '}}' }}{{ {'a': {'b': 1}}['a']['b'] }}{{ {'a':{}} }}{{ [[1], [2]][1][0] }}{{ ((1)) }}
{{ }}
{{ 1 2 }}
{{ 1 + }}
{{ (1 }}
{{ 1) }}
{{ [1, 2 }}
{{ {1 } }}
{{ 'abc }}
{% if %}{% endif %}
{% if 1 %}
{% endif %}
{% for x %}{% endfor %}
{% for x in l %}
{% nope %}
{% if 1 %}{% endfor %}
{% else %}
{% set %}
{% set x = %}
{% macro %}{% endmacro %}
{% include 'x' %}
{% extends 'x' %}
{% do 1 %}
{# open
{% raw %}open
{{ a.b.c.d }}
{{ x | }}
{{ a. }}
{{ a['b' }}
{{ f(a=1, 2) }}
{{ dict(a=1, a=2) }}
{{ f(**d, 1) }}
{{ @ }}
{{ a ! b }}
{{ 1..2 }}
{{ 5 if }}
{{ not }}
{{ s | upper() | lower | length }} {{ s|upper|lower|replace('h', 'J') }} {{ (s|upper).lower() }} {{ s.upper()|lower }} {{ 'a,b'.split(',')|join(';') }} {{ users[0].name.upper()[0] }} {{ users[-1]['more'].k }}
{{ n.__add__(1) }}
{{ loop }}|{{ caller }}|
{{ 1 if s else missing.x }} {{ missing.x if e else 1 }} {{ t or missing.x }} {{ b and missing.x }}
{{ '' if missing else 'x' }} {{ missing }}{{ missing|e }}|{{ [missing] }}{{ {'a': missing} }}
{{ 10000000000000000000000 }}
{{ 9223372036854775807 + 1 }} {{ -9223372036854775808 // -1 }} {{ 2 ** 64 }} {{ big + 1 }} {{ big * 2 }} {{ big // 3 }} {{ big / 2 }} {{ big % 1000 }} {{ 3 ** 40 }} {{ -(2 ** 100) }}
{{ 7.0 // 2 }} {{ 7.5 // -2 }} {{ -0.0 }} {{ 0.0 * -1 }} {{ 1e308 + 1e308 }} {{ 3 * 0.1 }} {{ 1.1 * 1.1 }} {{ 100 * 1.1 }} {{ 1e21 + 1 }} {{ 2 ** 0.5 }} {{ 4 ** 0.5 }} {{ 1e3 ** 2 }}
""".strip("\n").split("\n")

# These templates contain newlines.
SNIPPETS += [
    "a\n{% if true %}\nb\n{% endif %}\nc\n",
    "a\n   {% if true %}   \nb\n   {% endif %}\nc\n\n",
    "  {% set x = 1 %}\n  {{ x }}\n  {# c #}\n  {{ x }}\n",
    "a\r\nb\rc\n{% if 1 %}\r\nd{% endif %}\r\n",
    "{{ 'a\nb' }}\n\n",
    "\n\n{{ 1 }}\n",
    "{% for x in l %}\n  {{ x }}\n{% endfor %}\n",
    "{% for x in l -%}\n  {{ x }}\n{%- endfor %}\n",
    "x {%- raw -%}  \n {{ }} \n {%- endraw -%} \n y",
    "a {{- '\n' -}} b\u00a0{%- if 1 -%}\u2003c{% endif %}",
    "{{\n  s\n  |\n  upper\n}}",
    "{%\nif t\n%}x{%\nendif\n%}",
    "{{ {\n 'a': 1,\n} }}",
    "{#-#}x{#- -#} y {#+ c +#}\nz {# c #}\nw",
    "\t{%+ if t %}x{% endif %}",
    "{% raw %}a{% endraw %}\nb",
    "",
    "\n",
    "plain { text } %} }} #} { { {",
    "{{ '{% raw %}' }}",
    "é{{ 'ü' }}世界",
]
