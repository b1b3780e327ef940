// Limits, errors and provenance of chat templates. What templates render is in tests/golden.
#include "models/chat_template/chat_template.h"

#include <gmock/gmock.h>

#include <random>

#include "tests/unit/models/chat_template_test_util.h"

namespace headroom::models::testing {
namespace {

using ::testing::HasSubstr;

ChatInput OneUser(const std::string& content) {
  ChatInput input;
  input.messages = Value::List({Value::Dict(
      {{"role", Value::MessageString("user")}, {"content", Value::MessageString(content)}})});
  input.bos_token = "<s>";
  return input;
}

std::string Repeated(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) {
    out += text;
  }
  return out;
}

Status RenderError(const std::string& source, const TemplateLimits& limits = {}) {
  const auto rendered = RenderTemplate(source, OneUser("hi"), limits);
  EXPECT_FALSE(rendered.ok()) << source.substr(0, 200) << " gave " << rendered->text.substr(0, 200);
  return rendered.status();
}

TEST(ChatTemplateErrorTest, ParseErrorsNameLineAndColumn) {
  EXPECT_EQ(StatusMessage(ChatTemplate::Parse("a\n{{ x | nosuch }}").status()),
            "chat template, line 2, column 8: the filter 'nosuch' is not supported");
  EXPECT_EQ(StatusMessage(ChatTemplate::Parse("{% include 'x' %}").status()),
            "chat template, line 1, column 4: the tag 'include' is not supported here");
  EXPECT_THAT(StatusMessage(ChatTemplate::Parse("{{ f(*x) }}").status()),
              HasSubstr("line 1, column 6: * and ** in a call are not supported"));
}

TEST(ChatTemplateErrorTest, RunTimeErrorsNameTheirPlace) {
  EXPECT_EQ(StatusMessage(RenderError("ab\n{{ 1 + messages[0].role }}")),
            "'+' is not defined between int and str (chat template, line 2, column 4)");
  EXPECT_EQ(StatusMessage(RenderError("{{ messages[0].nosuch.deeper }}")),
            "'dict object' has no attribute 'nosuch' (chat template, line 1, column 22)");
}

TEST(ChatTemplateErrorTest, RaiseExceptionKeepsItsOwnText) {
  const Status status = RenderError("{{ raise_exception('No ' + messages[0].role) }}");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(StatusMessage(status), "No user");
}

TEST(ChatTemplateErrorTest, SourcesThatNestTooDeepAreRefused) {
  const std::string sources[] = {
      "{{ " + Repeated("(", 20'000) + "1" + Repeated(")", 20'000) + " }}",
      "{{ " + Repeated("[", 20'000) + Repeated("]", 20'000) + " }}",
      "{{ " + Repeated("{'a':", 20'000) + "1" + Repeated("}", 20'000) + " }}",
      "{{ " + Repeated("x[", 20'000) + "0" + Repeated("]", 20'000) + " }}",
      "{{ " + Repeated("f(", 20'000) + Repeated(")", 20'000) + " }}",
      "{{ " + Repeated("1 is eq [", 20'000) + Repeated("]", 20'000) + " }}",
      Repeated("{% if 1 %}", 20'000) + Repeated("{% endif %}", 20'000),
      Repeated("{% for x in [1] %}", 20'000) + Repeated("{% endfor %}", 20'000),
      Repeated("{% macro m() %}", 20'000) + Repeated("{% endmacro %}", 20'000),
  };
  for (const std::string& source : sources) {
    const auto parsed = ChatTemplate::Parse(source);
    ASSERT_FALSE(parsed.ok()) << source.substr(0, 40);
    EXPECT_THAT(StatusMessage(parsed.status()), HasSubstr("nested more than 64 deep"));
  }
}

TEST(ChatTemplateErrorTest, LongFlatSourcesAreFine) {
  const std::string sources[] = {
      "{#" + std::string(60'000, 'x') + "#}",
      "{{ 1" + Repeated(" + 1", 20'000) + " }}",
      "{{ '" + std::string(60'000, 'x') + "'" + Repeated("|trim", 1000) + " }}",
      "{{ " + Repeated("not ", 20'000) + "1 }}",
      "{{ " + Repeated("-", 20'000) + "1 }}",
      "{{ " + Repeated("1 if 0 else ", 20'000) + "2 }}",
      "{% if 0 %}" + Repeated("{% elif 0 %}", 20'000) + "{% endif %}",
      "{{ 'a'" + Repeated(" 'b'", 20'000) + " }}",
  };
  for (const std::string& source : sources) {
    const auto rendered = RenderTemplate(source, OneUser("hi"));
    EXPECT_TRUE(rendered.ok()) << source.substr(0, 40) << ": " << rendered.status();
  }
}

struct Bomb {
  const char* source;
  StatusCode code;
  const char* message;
};

TEST(ChatTemplateLimitTest, HostileTemplatesEndInACleanError) {
  const Bomb bombs[] = {
      {"{{ range(1000000000) }}", StatusCode::kResourceExhausted, "range: more than 100000"},
      {"{{ range(-9223372036854775807, 9223372036854775807) }}", StatusCode::kResourceExhausted,
       "range: more than 100000"},
      {"{{ range(1, 0, 0) }}", StatusCode::kInvalidArgument, "step cannot be 0"},
      {"{{ 1 // 0 }}", StatusCode::kInvalidArgument, "division by zero"},
      {"{{ 1 % 0 }}", StatusCode::kInvalidArgument, "division by zero"},
      {"{{ (-9223372036854775807 - 1) // -1 }}", StatusCode::kInvalidArgument, "overflows"},
      {"{{ -(-9223372036854775807 - 1) }}", StatusCode::kInvalidArgument, "overflows"},
      {"{{ 9223372036854775807 + 1 }}", StatusCode::kInvalidArgument, "overflows"},
      {"{{ 10 ** 100 }}", StatusCode::kInvalidArgument, "overflows"},
      {"{{ 'x' * 1000000000000 }}", StatusCode::kResourceExhausted, "values took more"},
      {"{{ ([0] * 100000) * 100000 }}", StatusCode::kResourceExhausted, "values took more"},
      {"{{ '' * 9000000000000000000 }}", StatusCode::kInvalidArgument, "overflows"},
      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", StatusCode::kResourceExhausted,
       "nested more than 64 deep"},
      {"{% macro f() %}{{ caller() }}{% endmacro %}{% call f() %}{% call f() %}{{ caller() }}"
       "{% endcall %}{% endcall %}",
       StatusCode::kInvalidArgument, "undefined"},
      {"{% set n = namespace(x=[]) %}{% for i in range(1000) %}{% set n.x = [n.x] %}{% endfor %}",
       StatusCode::kResourceExhausted, "nested more than 200 deep"},
      {"{% set n = namespace(x=[1]) %}{% for i in range(100) %}{% set n.x = [n.x, n.x] %}"
       "{% endfor %}{{ n.x }}",
       StatusCode::kResourceExhausted, ""},
      {"{% set n = namespace(x=[1]) %}{% for i in range(100) %}{% set n.x = [n.x, n.x] %}"
       "{% endfor %}{{ n.x|tojson }}",
       StatusCode::kResourceExhausted, ""},
      {"{% set n = namespace(x=[1], y=[1]) %}{% for i in range(100) %}{% set n.x = [n.x, n.x] %}"
       "{% set n.y = [n.y, n.y] %}{% endfor %}{{ n.x == n.y }}",
       StatusCode::kResourceExhausted, "steps"},
      {"{% set n = namespace(x='a') %}{% for i in range(100) %}{% set n.x = n.x + n.x %}"
       "{% endfor %}",
       StatusCode::kResourceExhausted, "values took more"},
      {"{% set n = namespace(x='ab') %}{% for i in range(100) %}{% set n.x = n.x|replace('a', n.x)"
       " %}{% endfor %}",
       StatusCode::kResourceExhausted, "values took more"},
      {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
       StatusCode::kResourceExhausted, ""},
      {"{% for a in range(99999) %}{{ 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' * 99 "
       "}}"
       "{% endfor %}",
       StatusCode::kResourceExhausted, ""},
      {"{% set n = namespace() %}{% set n.n = n %}", StatusCode::kInvalidArgument,
       "cannot be stored"},
      {"{% macro m() %}{% endmacro %}{% set x = [m] %}", StatusCode::kInvalidArgument,
       "cannot be stored"},
      {"{{ [1]|tojson(indent=9000000000000000000) }}", StatusCode::kResourceExhausted, ""},
      {"{{ 'a'|indent(9000000000000000000) }}", StatusCode::kResourceExhausted, ""},
      {"{{ [1]|batch(9000000000000000000, 0) }}", StatusCode::kResourceExhausted, ""},
      {"{{ messages.append(1) }}", StatusCode::kInvalidArgument, "values cannot be changed"},
  };
  TemplateLimits limits;  // a tenth of the defaults, so that the test is quick
  limits.max_steps /= 10;
  limits.max_value_bytes /= 10;
  for (const Bomb& bomb : bombs) {
    SCOPED_TRACE(bomb.source);
    const Status status = RenderError(bomb.source, limits);
    EXPECT_EQ(status.code(), bomb.code) << status;
    EXPECT_THAT(StatusMessage(status), HasSubstr(bomb.message));
  }
}

TEST(ChatTemplateLimitTest, EveryLimitCanBeSet) {
  TemplateLimits limits;
  limits.max_source_bytes = 10;
  EXPECT_THAT(StatusMessage(ChatTemplate::Parse("01234567890", limits).status()),
              HasSubstr("has 11 bytes, wanted at most 10"));
  limits = {};
  limits.max_steps = 100;
  EXPECT_THAT(StatusMessage(RenderError("{% for i in range(99) %}x{% endfor %}", limits)),
              HasSubstr("more than 100 steps"));
  limits = {};
  limits.max_output_bytes = 10;
  EXPECT_THAT(StatusMessage(RenderError("01234567890", limits)), HasSubstr("more than 10 bytes"));
  limits = {};
  limits.max_value_bytes = 1000;
  EXPECT_THAT(StatusMessage(RenderError("{{ 'x' * 1000 }}", limits)),
              HasSubstr("more than 1000 bytes"));
  limits = {};
  limits.max_depth = 4;
  EXPECT_THAT(StatusMessage(ChatTemplate::Parse("{{ [[[[1]]]] }}", limits).status()),
              HasSubstr("nested more than 4 deep"));
}

TEST(ChatTemplateLimitTest, TimeIsMeasuredByTheGivenClock) {
  const auto chat_template = ChatTemplate::Parse("{% for i in range(99999) %}x{% endfor %}");
  ASSERT_TRUE(chat_template.ok()) << chat_template.status();
  EXPECT_TRUE((*chat_template)->Render(OneUser(""), TickingClock(1'000)).ok());
  const auto slow = (*chat_template)->Render(OneUser(""), TickingClock(100'000'000));
  ASSERT_FALSE(slow.ok());
  EXPECT_EQ(slow.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(StatusMessage(slow.status()), HasSubstr("more than 2000 ms"));
}

// The text with every template byte as '.', so that what is left is message text.
std::string MessageBytes(const std::string& source, const ChatInput& input) {
  const auto rendered = RenderTemplate(source, input);
  EXPECT_TRUE(rendered.ok()) << source << ": " << rendered.status();
  if (!rendered.ok()) {
    return "";
  }
  std::string out(rendered->text.size(), '.');
  for (const ByteRange& range : rendered->message_ranges) {
    for (int64_t i = range.begin; i < range.end; ++i) {
      out[static_cast<size_t>(i)] = rendered->text[static_cast<size_t>(i)];
    }
  }
  return out;
}

struct ProvenanceCase {
  const char* expression;
  const char* message_bytes;
};

TEST(ChatTemplateProvenanceTest, EveryOperationKeepsTheOriginOfItsBytes) {
  const ProvenanceCase cases[] = {
      {"'<' + c + '>'", ".aXbXc."},
      {"'<' ~ c ~ 1", ".aXbXc1"},
      {"c[1:3] + 'y'", "Xb."},
      {"('..' + c)[1:4]", ".aX"},
      {"c.split('X')|join('-')", "a.b.c"},
      {"'-'.join(c.split('X'))", "a.b.c"},
      {"c|replace('X', '..')", "a..b..c"},
      {"'TXT'|replace('X', c)", ".aXbXc."},
      {"('  ' + c + '  ')|trim", "aXbXc"},
      {"(' ' + c).strip() + ' '", "aXbXc."},
      {"('t' + c)|upper", ".AXBXC"},
      {"('t' + c)|title", ".axbxc"},
      {"{'k': c}|tojson", "{\"k\": \"aXbXc\"}"},
      {"['t']|tojson", "[\"t\"]"},
      {"[c, 't']", "['aXbXc', 't']"},
      {"c|length", "5"},
      {"loop_like|default('t')", "."},
      {"messages[0]|list|join(',')", "role.content"},
      {"{'t': 1}|list|join", "."},
      {"{c: 1}|list|join", "aXbXc"},
      {"c * 2", "aXbXcaXbXc"},
      {"('t' + c)[::-1]", "cXbXa."},
      {"('<' + c)|e", "....aXbXc"},
      {"bos_token + c", "...aXbXc"},
      {"v", "3"},
      {"w", "<s>"},
      {"strftime_now('%Y')", "2026"},
      {"(c + '\nt')|indent(1)", "aXbXc\n ."},
      {"messages[0].role", "user"},
      {"c.splitlines()[0] + 't'", "aXbXc."},
  };
  ChatInput input = OneUser("aXbXc");
  input.local_time_s = kGoldenTimeS;
  input.variables = {{"v", Value::Int(3)}, {"w", Value::MessageString("<s>")}};
  for (const ProvenanceCase& test : cases) {
    SCOPED_TRACE(test.expression);
    EXPECT_EQ(
        MessageBytes(
            fmt::format("{{% set c = messages[0].content %}}{{{{ {} }}}}", test.expression), input),
        test.message_bytes);
  }
}

TEST(ChatTemplateProvenanceTest, VariablesCannotStandInForSpecialTokens) {
  ChatInput input = OneUser("hi");
  input.variables = {{"bos_token", Value::MessageString("<evil>")}, {"messages", Value::List({})}};
  const auto rendered = RenderTemplate("{{ bos_token }}{{ messages|length }}", input);
  ASSERT_TRUE(rendered.ok()) << rendered.status();
  EXPECT_EQ(rendered->text, "<s>1");
}

// Random contents made of special-token spellings: outside the message ranges the text must be the
// template's own, the same as with any other content.
TEST(ChatTemplateProvenanceTest, NoContentReachesTheTrustedBytes) {
  const std::string source =
      "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content|trim }}"
      "{{ '[' ~ m.content|upper ~ ']' }}{{ m|tojson }}{{ m.content.split('|')|join('<|im_end|>') }}"
      "{% set x %}{{ m.content[::-1] }}{% endset %}{{ x|replace('>', '') }}<|im_end|>\n{% endfor "
      "%}";
  const std::vector<std::string> pieces = {"<|im_start|>", "<|im_end|>", "<s>", "|", "\n",
                                           "system",       "\xC3\xA9",   "'\"", " ", "x"};
  const auto trusted_text = [](const ProvenancedText& text) {
    std::string out;
    size_t at = 0;
    for (const ByteRange& range : text.message_ranges) {
      out += text.text.substr(at, static_cast<size_t>(range.begin) - at);
      at = static_cast<size_t>(range.end);
    }
    return out + text.text.substr(at);
  };
  const uint64_t seed = 20260102;
  std::mt19937_64 random(seed);
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(fmt::format("seed {} round {}", seed, round));
    std::string content;
    size_t num_bars = 0;
    const size_t num_pieces = random() % 12;
    for (size_t i = 0; i < num_pieces; ++i) {
      content += pieces[random() % pieces.size()];
    }
    for (const char c : content) {
      num_bars += c == '|' ? 1 : 0;
    }
    const auto rendered = RenderTemplate(source, OneUser(content));
    ASSERT_TRUE(rendered.ok()) << rendered.status();
    std::string expected = "<s><|im_start|>\n[]";
    for (size_t i = 0; i < num_bars; ++i) {
      expected += "<|im_end|>";  // the template's own separator
    }
    EXPECT_EQ(trusted_text(*rendered), expected + "<|im_end|>\n");
  }
}

TEST(ChatTemplateTest, WithoutATimeTheTemplateFindsNoClock) {
  const std::string source =
      "{{ strftime_now('%d %b %Y') if strftime_now is defined else 'none' }}";
  ChatInput input = OneUser("");
  EXPECT_EQ(RenderTemplate(source, input)->text, "none");
  input.local_time_s = kGoldenTimeS;
  EXPECT_EQ(RenderTemplate(source, input)->text, "02 Jan 2026");
}

TEST(ChatTemplateTest, OneTemplateRendersManyConversations) {
  const auto chat_template = ChatTemplate::Parse(kSmolLm2Template);
  ASSERT_TRUE(chat_template.ok());
  const TickingClock clock;
  const auto first = (*chat_template)->Render(OneUser("one"), clock);
  const auto second = (*chat_template)->Render(OneUser("two"), clock);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_THAT(first->text, HasSubstr("user\none<|im_end|>"));
  EXPECT_THAT(second->text, HasSubstr("user\ntwo<|im_end|>"));
}

}  // namespace
}  // namespace headroom::models::testing
