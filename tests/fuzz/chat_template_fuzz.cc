// The input is a chat template, rendered with one conversation under tight limits. Whatever it
// holds: no crash, no more output than allowed, and message text stays marked as message text.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/check.h"
#include "base/clock.h"
#include "models/chat_template/chat_template.h"

namespace headroom::models {
namespace {

constexpr int64_t kMaxOutputBytes = 1 << 16;
// Text that no short template spells by accident.
constexpr const char* kMessageText = "\x01\x02\x03";

TemplateLimits TightLimits() {
  TemplateLimits limits;
  limits.max_source_bytes = 1 << 14;
  limits.max_steps = 20'000;
  limits.max_output_bytes = kMaxOutputBytes;
  limits.max_value_bytes = 1 << 20;
  return limits;
}

ChatInput Conversation() {
  const auto message = [](const char* role, const char* text) {
    return Value::Dict({{"role", Value::MessageString(role)},
                        {"content", Value::MessageString(text)}});
  };
  ChatInput input;
  input.messages = Value::List({message("system", "Be brief."), message("user", kMessageText),
                                message("assistant", "Yes."), message("user", "Why?")});
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  return input;
}

void Run(std::string source) {
  const bool spells_message = source.find('\x01') != std::string::npos ||
                              source.find('\\') != std::string::npos;
  const auto chat_template = ChatTemplate::Parse(std::move(source), TightLimits());
  if (!chat_template.ok()) {
    return;
  }
  const SteadyClock clock;
  const StatusOr<ProvenancedText> text = (*chat_template)->Render(Conversation(), clock);
  if (!text.ok()) {
    return;
  }
  HEADROOM_CHECK(static_cast<int64_t>(text->text.size()) <= kMaxOutputBytes);
  int64_t last_end = 0;
  for (const auto& [begin, end] : text->message_ranges) {
    HEADROOM_CHECK(last_end <= begin && begin <= end);
    HEADROOM_CHECK(end <= static_cast<int64_t>(text->text.size()));
    last_end = end;
  }
  if (spells_message) {
    return;
  }
  for (size_t at = text->text.find('\x01'); at != std::string::npos;
       at = text->text.find('\x01', at + 1)) {
    bool is_message = false;
    for (const auto& [begin, end] : text->message_ranges) {
      is_message |= begin <= static_cast<int64_t>(at) && static_cast<int64_t>(at) < end;
    }
    HEADROOM_CHECK(is_message);
  }
}

}  // namespace
}  // namespace headroom::models

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  headroom::models::Run(std::string(data, data + size));
  return 0;
}
