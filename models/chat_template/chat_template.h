// Chat templates: an own interpreter for the Jinja subset that published templates use.
//
// A template comes from a model file, so it is not trusted: no host objects, no imports, no
// recursion of ours, and hard limits on steps, depth, output and time. Rendered text carries,
// byte for byte, whether it came from the template or from a message.
//
// The language is Jinja2's as the Hugging Face tokenizers set it up (trim_blocks, lstrip_blocks,
// loop controls, immutable sandbox). Supported:
// - Statements: if/elif/else, for (tuple targets, `if` filter, else, `loop` without changed()), set
//   (also tuples, namespace attributes, blocks with filters), macro, call, filter, with, raw,
//   break, continue, generation (a plain scope), comments, white-space control with - and +.
// - Expressions: literals, + - * / // % **, chained comparisons, in, not in, and, or, not, ~,
//   inline if, subscripts, slices, attributes, calls with names, filters, tests.
// - Filters: trim upper lower title capitalize replace string safe escape e forceescape indent join
//   default d length count int float abs round tojson attr list first last items reverse sort
//   dictsort min max unique sum batch map select reject selectattr rejectattr.
// - Tests: defined undefined none string mapping sequence iterable boolean integer float number
//   callable true false odd even divisibleby eq ne lt le gt ge (and their long forms) in sameas
//   lower upper filter test.
// - Methods: of str as string_methods.cc lists them; list.count index copy; dict.get items keys
//   values copy. Those that change a list or dict are refused.
// - Functions: range (100,000 items), namespace, dict, raise_exception, strftime_now.
// Everything else (include, import, extends, block, recursive loops, *args, unknown filters and
// tests) is an error with line and column at Parse. Other differences from Jinja2: integers have 64
// bits, dict keys are strings, filters that are lazy there give lists, namespaces and macros cannot
// be put into other values, and case mapping covers Latin, Greek, Cyrillic and Armenian.
//
// Provenance: a byte is trusted only if it is a literal of the template, or bos_token or eos_token.
// Cutting, joining, replacing, stripping and changing case keep each byte's origin; whatever is
// computed (tojson, digits, True, dates, dict keys of the request, variables) counts as message.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "models/chat_template/value.h"
#include "models/tokenizer/tokenizer.h"

namespace headroom::models {

struct TemplateLimits {
  int64_t max_source_bytes = 1 << 20;
  int64_t max_steps = 10'000'000;         // interpreter steps a rendering may take
  int32_t max_depth = 64;                 // nesting of expressions, blocks and macro calls
  int64_t max_output_bytes = 64LL << 20;  // rendered text
  int64_t max_value_bytes = 256LL << 20;  // memory that values made by the template may hold
  int64_t max_time_ms = 2000;
};

struct ChatInput {
  Value messages;  // list of dicts: role, content, and what the client sent
  Value tools;     // list of dicts or undefined
  bool add_generation_prompt = true;
  std::string bos_token;  // as the vocabulary spells it; may be empty
  std::string eos_token;
  std::vector<std::pair<std::string, Value>> variables;  // further top-level names
  // Seconds since 1970 of the local wall clock, for strftime_now. Unset: the template finds no
  // such function and takes its own default, as published templates do.
  std::optional<int64_t> local_time_s;
};

class ChatTemplate {
 public:
  // InvalidArgument with line and column when `source` does not parse or exceeds the limits.
  static StatusOr<std::unique_ptr<ChatTemplate>> Parse(std::string source,
                                                       const TemplateLimits& limits = {});
  virtual ~ChatTemplate() = default;

  // Renders one conversation. Errors: InvalidArgument when the template itself refuses
  // (raise_exception: its text) or uses a value in an undefined way; ResourceExhausted when a
  // limit is hit. Any thread. `clock` measures the time limit.
  virtual StatusOr<ProvenancedText> Render(const ChatInput& input, const Clock& clock) const = 0;
};

}  // namespace headroom::models
