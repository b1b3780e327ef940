#!/usr/bin/env python3
"""Render small templates with Jinja2 to make tests/golden/jinja_cases.json.

usage: make_jinja_cases.py > jinja_cases.json

The environment is the one that Hugging Face tokenizers render chat templates with. Each record holds
a template and what Jinja2 rendered from it ("expected"), or why it refused ("error").
"""
import json
import sys

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

CONTEXT = {
    "s": "Hello, World",
    "u": "Grüße, 你好 🙂",
    "padded": "  \n x y \t",
    "html": "<b>\"a\" & 'c'</b>",
    "empty": "",
    "n": 7,
    "neg": -7,
    "f": 2.5,
    "yes": True,
    "no": False,
    "nothing": None,
    "numbers": [3, 1, 2, 10],
    "words": ["beta", "Alpha", "gamma", "alpha"],
    "rows": [
        {"role": "user", "content": "hi", "n": 2},
        {"role": "assistant", "content": "yo", "n": 1},
        {"role": "user", "content": "bye", "n": 3, "tag": {"name": "x"}},
    ],
    "d": {"b": 1, "a": [1, 2.0, "x"], "c": None, "items": "shadowed", "t": True},
}

CASES = [
    # output and literals
    "{{ s }}|{{ n }}|{{ f }}|{{ yes }}|{{ nothing }}|{{ missing }}|{{ empty }}",
    "{{ 1_000 }} {{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 1.5 }} {{ 1e3 }} {{ 2.50 }} {{ 1e22 }} {{ 1e-5 }} {{ 0.0001 }}",
    "{{ 'a' 'b' \"c\" }} {{ 'it\\'s' }} {{ \"\\n\\t\\\\\\x41\\u00e9\\101\\q\" }}",
    "{{ [1, 'a', none, true, 2.0, [], {}, ()] }} {{ (1,) }} {{ (1, 2) }} {{ {'a': 1, 'b': [2]} }}",
    "{{ ['it\\'s', '\"', 'a\\nb', 'é', '\\x00', '\\u200b'] }}",
    "{{ 1, 2 }} {{ () }}",
    "{{ 1e16 }} {{ 123456789012345680.0 }} {{ 1e15 }} {{ 0.1 + 0.2 }} {{ -0.0 }} {{ 100.0 }}",
    "{{ {'a': {'b': 1}}['a']['b'] }}{{ {'x': {'y': {}}} }}",
    # arithmetic
    "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 6 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }}",
    "{{ 7.5 // 2 }} {{ -7.5 // 2 }} {{ 7.5 % 2 }} {{ -7.5 % 2 }} {{ 2.0 ** 0.5 }}",
    "{{ 1 + 2 * 3 - 4 / 2 }} {{ (1 + 2) * 3 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ - - 3 }} {{ +n }}",
    "{{ 'ab' + 'cd' }} {{ [1] + [2] }} {{ (1,) + (2,) }} {{ 'ab' * 3 }} {{ 2 * [1, 2] }} {{ 'x' * -1 }}",
    "{{ true + 1 }} {{ 'a' ~ 1 ~ none ~ missing ~ true ~ 1.0 ~ [1] }}",
    "{{ 1 + 'a' }}",
    "{{ 'a' + 1 }}",
    "{{ 1 // 0 }}",
    "{{ 1 % 0 }}",
    "{{ 1.0 / 0 }}",
    "{{ missing + 'a' }}",
    "{{ -s }}",
    # comparison and logic
    "{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' == 1 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }}",
    "{{ 'a' in 'abc' }} {{ 'd' not in 'abc' }} {{ 1 in [1, 2] }} {{ 'a' in d }} {{ 'z' in d }} {{ 1 in missing }} {{ '' in 'a' }}",
    "{{ not yes }} {{ not not n }} {{ yes and 'x' }} {{ no or 'y' }} {{ empty or nothing }} {{ 1 and 0 or 2 }}",
    "{{ 1 < 'a' }}",
    "{{ 1 in 5 }}",
    "{{ 1 in 'abc' }}",
    "{{ missing == missing2 }} {{ missing != 1 }} {{ nothing == missing }} {{ {'a': 1} == {'a': 1.0} }} {{ [1] == (1,) }}",
    "{{ missing < 1 }}",
    # conditional expressions
    "{{ 'a' if yes else 'b' }} {{ 'a' if no else 'b' if no else 'c' }} {{ 'a' if no }}|{{ ('x' if no) is undefined }}",
    "{{ 1 if yes and no else 2 }} {{ [1 if yes else 2, 3] }}",
    # subscripts, slices, attributes
    "{{ numbers[0] }} {{ numbers[-1] }} {{ numbers[10] }}| {{ s[0] }} {{ u[7] }} {{ u[-1] }} {{ s[99] }}|",
    "{{ s[1:4] }}|{{ s[:-3] }}|{{ s[::-1] }}|{{ s[::2] }}|{{ s[10:2:-3] }}|{{ u[5:9] }}|{{ u[::-1] }}|{{ s[100:] }}|{{ s[-100:3] }}",
    "{{ numbers[1:] }} {{ numbers[:-1] }} {{ numbers[::-1] }} {{ numbers[-2::-1] }} {{ numbers[5:1] }} {{ (1,2,3)[1:] }} {{ numbers[::100] }}",
    "{{ d.b }} {{ d['b'] }} {{ d['items'] }} {{ d.missing }}| {{ d.a.0 }} {{ d.a[2] }} {{ rows[2].tag.name }}",
    "{{ s[::0] }}",
    "{{ d.missing.deeper }}",
    "{{ missing.attribute }}",
    "{{ missing['x'] }}",
    "{{ nothing.x }}|{{ s.nosuch }}|{{ n.nosuch }}|{{ numbers.nosuch }}|",
    "{{ nothing.x.y }}",
    "{{ missing() }}",
    "{{ s() }}",
    "{{ d.get('b') }} {{ d.get('z') }} {{ d.get('z', 5) }}",
    # tests
    "{{ s is string }} {{ n is number }} {{ n is integer }} {{ f is float }} {{ yes is boolean }} {{ yes is integer }} {{ d is mapping }} {{ numbers is sequence }} {{ s is sequence }} {{ d is sequence }}",
    "{{ numbers is iterable }} {{ s is iterable }} {{ n is iterable }} {{ missing is iterable }} {{ missing is defined }} {{ missing is undefined }} {{ nothing is none }} {{ nothing is defined }} {{ yes is number }}",
    "{{ yes is true }} {{ 1 is true }} {{ no is false }} {{ 3 is odd }} {{ 4 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(4) }} {{ -3 is odd }}",
    "{{ n is eq 7 }} {{ n is equalto(7) }} {{ n is ne 7 }} {{ n is gt 6 }} {{ n is lt 6 }} {{ n is ge 7 }} {{ n is le 6 }} {{ n is in [7] }} {{ n is sameas n }}",
    "{{ 'abc' is lower }} {{ 'ABC' is upper }} {{ 'aB' is lower }} {{ range is callable }} {{ s is callable }} {{ 'trim' is filter }} {{ 'odd' is test }}",
    "{{ missing is not defined and not missing }} {{ not missing is defined }} {{ n is defined and n is not none }}",
    "{{ missing is odd }}",
    # filters on text
    "[{{ padded|trim }}] [{{ 'xxaxx'|trim('x') }}] {{ s|upper }} {{ u|lower }} {{ u|upper }} {{ 'hello wORLD-foo (bar'|title }} {{ 'hELLO wORLD'|capitalize }}",
    "{{ s|replace('l', 'L') }} {{ s|replace('l', 'L', 1) }} {{ 'aaa'|replace('', '-') }} {{ 5|replace(5, 6) }} {{ 12|string + '!' }}",
    "{{ html|escape }} {{ html|e|e }} {{ html|safe }} {{ '<'|safe + '<' }} {{ '<' + '>'|safe }} {{ ('<'|e) ~ '<' }} {{ html|forceescape }}",
    "{{ 'a\\nb\\n\\nc\\n'|indent }}|{{ 'a\\nb'|indent(2, true) }}|{{ 'a\\n\\nb'|indent(width=1, blank=true) }}|{{ 'a\\nb'|indent('> ') }}",
    "{{ words|join }} {{ words|join(', ') }} {{ [1, none, 'x']|join('-') }} {{ rows|join('|', attribute='role') }} {{ 'abc'|join('.') }}",
    "{{ missing|trim }}|{{ missing|upper }}|{{ nothing|upper }}|{{ n|upper }}|{{ missing|length }}|{{ missing|join }}",
    # filters on values
    "{{ missing|default('x') }} {{ empty|default('x') }}| {{ empty|default('x', true) }} {{ nothing|d('x') }} {{ nothing|d('x', boolean=true) }} {{ missing|default }}|",
    "{{ s|length }} {{ u|count }} {{ numbers|length }} {{ d|length }}",
    "{{ '42'|int }} {{ ' 42 '|int }} {{ '3.9'|int }} {{ 'x'|int }} {{ 'x'|int(5) }} {{ 3.9|int }} {{ -3.9|int }} {{ true|int }} {{ 'ff'|int(0, 16) }} {{ '1.5'|float }} {{ 'x'|float }} {{ 'x'|float(1.0) }} {{ 2|float }}",
    "{{ -3|abs }} {{ -2.5|abs }} {{ 2.5|round }} {{ 3.5|round }} {{ 2.675|round(2) }} {{ 2.4|round(method='ceil') }} {{ 2.6|round(0, 'floor') }} {{ 1234.5|round(-2) }} {{ 7|round }}",
    "{{ d|tojson }}|{{ s|tojson }}|{{ nothing|tojson }}|{{ yes|tojson }}|{{ f|tojson }}|{{ u|tojson }}|{{ html|tojson }}",
    "{{ d|tojson(indent=2) }}|{{ []|tojson(indent=2) }}|{{ {}|tojson(indent=2) }}|{{ [[1], {'a': {}}]|tojson(indent=1) }}",
    "{{ u|tojson(ensure_ascii=True) }}|{{ d|tojson(sort_keys=true) }}|{{ d|tojson(separators=(',', ':')) }}|{{ [1, 2]|tojson(indent=0) }}",
    "{{ '\\x01\\x1f\\x7f\\\\\"/\\b\\f\\n\\r\\t'|tojson }} {{ 1e100|tojson }} {{ 1.0|tojson }} {{ (1, 2)|tojson }}",
    "{{ missing|tojson }}",
    "{{ missing|int }}",
    "{{ n|length }}",
    # filters on sequences
    "{{ numbers|first }} {{ numbers|last }} {{ []|first }}|{{ 'abc'|first }} {{ 'abc'|last }} {{ d|first }}",
    "{{ numbers|sort }} {{ numbers|sort(reverse=true) }} {{ words|sort }} {{ words|sort(case_sensitive=true) }} {{ rows|sort(attribute='n')|map(attribute='content')|list }}",
    "{{ words|unique|list }} {{ [1, 1.0, 2, true]|unique|list }} {{ 'abc'|list }} {{ d|list }} {{ d.items()|list }} {{ d|items|list }} {{ missing|items|list }}",
    "{{ d|dictsort }}|{{ {'x': 2, 'y': 1}|dictsort(by='value') }}|{{ {'b': 1, 'A': 2}|dictsort(true) }}|{{ {'b': 1, 'A': 2}|dictsort(reverse=true) }}",
    "{{ numbers|sum }} {{ numbers|min }} {{ numbers|max }} {{ rows|sum(attribute='n') }} {{ words|min }} {{ words|max(case_sensitive=true) }} {{ [1.5, 2]|sum(start=10) }} {{ rows|sum('n') }}",
    "{{ rows|map(attribute='content')|join(',') }} {{ words|map('upper')|list }} {{ rows|map(attribute='tag.name', default='-')|list }} {{ ['1', '2']|map('int')|sum }} {{ words|map('replace', 'a', 'o')|list }}",
    "{{ rows|selectattr('role', 'equalto', 'user')|map(attribute='content')|list }} {{ rows|selectattr('tag')|list|length }} {{ rows|rejectattr('role', '==', 'user')|list|length }} {{ rows|selectattr('tag', 'defined')|list|length }}",
    "{{ numbers|select('odd')|list }} {{ numbers|reject('odd')|list }} {{ [0, 1, '', 'x']|select|list }} {{ numbers|select('gt', 2)|list }} {{ numbers|select('in', [1, 2])|list }} {{ nothing|select|list }}",
    "{{ numbers|reverse|list }} {{ 'abc'|reverse }} {{ numbers|batch(3)|list }} {{ numbers|batch(3, 0)|list }}",
    "{{ [1, 'a']|sort }}",
    "{{ nothing|items|list }}",
    "{{ nothing|list }}",
    # methods
    "[{{ padded.strip() }}] [{{ padded.lstrip() }}] [{{ padded.rstrip() }}] {{ 'xxaxx'.strip('x') }} {{ 'xyaxy'.lstrip('yx') }} {{ 'a\\n\\n'.rstrip('\\n') }}",
    "{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a b  c'.split(None, 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a b  c '.rsplit(None, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a<x>b'.split('<x>')[-1] }}",
    "{{ 'a\\nb\\r\\nc\\n'.splitlines() }} {{ 'a\\nb'.splitlines(true) }} {{ s.startswith('He') }} {{ s.endswith(('x', 'ld')) }} {{ s.find('o') }} {{ u.find('好') }} {{ s.rfind('o') }} {{ s.find('zz') }} {{ s.count('l') }} {{ s.index('W') }}",
    "{{ 'hELLO wORLD'.title() }} {{ \"it's\".title() }} {{ 'hELLO'.capitalize() }} {{ 'straße'.upper()[:4] }} {{ 'ÀÉ Ω Я'.lower() }} {{ s.replace('o', '0') }} {{ s.replace('o', '0', 1) }} {{ ', '.join(words) }} {{ ','.join('abc') }}",
    "{{ '12'.isdigit() }} {{ 'a1'.isalpha() }} {{ 'ab'.isalpha() }} {{ 'a1'.isalnum() }} {{ ' '.isspace() }} {{ 'AB'.isupper() }} {{ 'ab1'.islower() }} {{ '12'.isupper() }} {{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.txt'.removesuffix('.txt') }}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %} {{ d.keys()|list }} {{ d.values()|list }} {{ numbers.index(2) }} {{ numbers.count(3) }}",
    "{{ numbers.append(4) }}",
    "{{ d.update({'x': 1}) }}",
    "{{ 'a'.split('') }}",
    "{{ ','.join([1]) }}",
    "{{ s.index('zz') }}",
    # statements
    "{% if n > 5 %}big{% elif n > 2 %}mid{% else %}small{% endif %}{% if missing %}x{% endif %}{% if '' %}x{% else %}y{% endif %}",
    "{% for x in numbers %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ ',' if not loop.last }}{% endfor %}",
    "{% for x in numbers %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a', 'b') }}{{ loop.depth }} {% endfor %}",
    "{% for x in numbers if x > 1 %}{{ x }}({{ loop.index }} of {{ loop.length }}){% else %}none{% endfor %}{% for x in [] %}{% else %}empty{% endfor %}{% for x in numbers if x > 99 %}x{% else %}none{% endfor %}",
    "{% for x in numbers %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}|{% for x in numbers %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for k, v in d|dictsort %}{{ k }}{% endfor %}{% for (a, b) in [(1, 2), (3, 4)] %}{{ a }}{{ b }}{% endfor %}{% for x in 1, 2 %}{{ x }}{% endfor %}{% for c in 'añb' %}{{ c }}.{% endfor %}",
    "{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}{% if yes %}{% set x = 9 %}{% endif %}{{ x }}",
    "{% set ns = namespace(a=1, b='x') %}{% for i in [1, 2] %}{% set ns.a = ns.a + i %}{% set ns.c = i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c }}{{ ns.d }}|{% set m = namespace({'q': 1}, r=2) %}{{ m.q }}{{ m.r }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, e) = [3, 4] %}{{ c }}{{ e }}{% set t = 1, %}{{ t }}",
    "{% set x %}a {{ n }} b{% endset %}[{{ x }}]{% set y | upper | trim %} abc {% endset %}[{{ y }}]",
    "{% macro m(a, b=2, c=none) %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(1, c=4) }} {{ m(b=5, a=6) }} {{ m() }} {{ m('x')|upper }}",
    "{% macro fact(n) %}{% if n < 2 %}1{% else %}{{ n }}*{{ fact(n - 1) }}{% endif %}{% endmacro %}{{ fact(4) }}",
    "{% macro wrap(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call wrap('b') %}in {{ s }}{% endcall %}{% macro each(l) %}{% for i in l %}{{ caller(i) }}{% endfor %}{% endmacro %}{% call(x) each([1, 2]) %}[{{ x }}]{% endcall %}",
    "{% filter upper %}abc {{ s }}{% endfilter %}{% filter trim | replace('a', 'b') %}  banana {% endfilter %}",
    "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a }}|{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}",
    "{% raw %}{{ not }} {% a %}{% endraw %}|{%- raw -%}  x {% endraw %}|",
    "{# comment {{ x }} {% if %} #}a{# - #}b{#- c -#} d",
    "{% generation %}text {{ n }}{% endgeneration %}|{% generation %}{% set z = 1 %}{{ z }}{% endgeneration %}{{ z }}",
    "{{ range(5)|list }} {{ range(2, 8, 3)|list }} {{ range(5, 0, -2)|list }} {{ dict(a=1, b='x') }} {{ dict({'a': 1}, b=2) }}",
    "{% for a in [1, 2] %}{% for b in [3, 4] %}{{ loop.index }}{{ loop.depth }}{{ a }}{{ b }} {% endfor %}{{ loop.index }}{% endfor %}",
    "{% for x in missing %}x{% endfor %}|{% for x in d %}{{ x }}{% endfor %}",
    "{% for x in nothing %}x{% endfor %}",
    "{% for x in 5 %}x{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}x{% endfor %}",
    "{% set s.x = 1 %}",
    "{{ range(1, 0, 0) }}",
    "{{ range(1000000000) }}",
    "{{ raise_exception('no ' + s) }}",
    "{{ m(1, 2) }}{% macro m(a) %}{% endmacro %}",
    # white space
    "a\n  {% if yes %}\n  b\n  {% endif %}\nc\n",
    "a\n  {%- if yes -%}\n  b\n  {%- endif -%}\nc\n\n",
    "a\n  {%+ if yes +%}\n  b\n  {%+ endif %}\n  c",
    "  {{ n }}  \n  {{- n }}\n {{ n -}}\n  x {{- ' y ' -}} z",
    "  {# c #}\n  {#- c -#}\n  x\n\t{# c +#}\ny",
    "{% if yes %}\n\n a{% endif %}\n\nb",
    "x {% if yes %} y {% endif %} z\n   {% set q = 1 %}   \n  w",
    "{% for x in [1, 2] %}\n  - {{ x }}\n{% endfor %}\nend",
    "{% for x in [1, 2] -%}\n  - {{ x }}\n{%- endfor %}\nend",
    "line\r\n  {% if yes %}\r\nwin\r\n  {% endif %}\rmac",
    "\n\n{% if yes %}\n{% endif %}\n\n",
    "a\n  {% raw %}\n  b {{ x }}\n  {% endraw %}\n  c",
    "\u00a0{%- if yes %}\u2003{%- endif %}x\u3000\n\u00a0{% if yes %}y{% endif %}",
    "{{ 1 -}}\n\n{{- 2 }}{{+ 3 }} {% if yes +%}\n4{% endif %}",
    # syntax that Jinja refuses too
    "{% if yes %}",
    "{{ 1",
    "{{ 'a }}",
    "{% endif %}",
    "{% for x %}{% endfor %}",
    "{{ (1 }}",
    "{{ 1 ! 2 }}",
    "{{ s|nosuchfilter }}",
    "{{ s is nosuchtest }}",
    "{% break %}",
    "{# open",
    "{% raw %} x",
    "{{ }}",
    "{% nosuchtag %}",
]


class Generation(jinja2.ext.Extension):
    """{% generation %}, which training tools use to mark assistant text; rendering ignores it."""

    tags = {"generation"}

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_body")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(lineno)

    def _body(self, caller):
        return caller()


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


def main():
    records = []
    for template in CASES:
        record = {"template": template}
        try:
            record["expected"] = environment().from_string(template).render(**CONTEXT)
        except Exception as error:
            record["error"] = f"{type(error).__name__}: {error}"
        records.append(record)
    json.dump(
        {"context": CONTEXT, "cases": records}, sys.stdout, ensure_ascii=False, indent=1
    )
    print()


if __name__ == "__main__":
    main()
