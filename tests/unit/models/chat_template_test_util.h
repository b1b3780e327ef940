// What the chat template tests share: a clock, files, and conversations from JSON records.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "models/chat_template/chat_template.h"
#include "models/chat_template/value_json.h"
#include "models/chat_template/value_objects.h"

namespace headroom::models::testing {

// Time moves by a fixed amount with every look at it; none by default.
class TickingClock final : public Clock {
 public:
  explicit TickingClock(int64_t tick_ns = 0) : tick_ns_(tick_ns) {}
  int64_t NowNs() const override { return now_ns_ += tick_ns_; }

 private:
  int64_t tick_ns_;
  mutable int64_t now_ns_ = 0;
};

// The goldens' clock: 2026-01-02 03:04:05.
inline constexpr int64_t kGoldenTimeS = 1'767'323'045;

// SmolLM2's template, as its GGUF file holds it.
inline constexpr char kSmolLm2Template[] =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}{% endif %}";

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline Value Json(std::string_view text) {
  StatusOr<Value> value = ValueFromJson(text, /*from_message=*/true);
  EXPECT_TRUE(value.ok()) << value.status() << " in " << text;
  return value.ok() ? *value : Value();
}

inline const Value* Find(const Value& dict, std::string_view key) {
  return dict.dict() == nullptr ? nullptr : dict.dict()->Find(key);
}

inline std::string Text(const Value& value) {
  return value.text() == nullptr ? std::string() : value.text()->text;
}

// A conversation from a dict of the names that the template sees.
inline ChatInput InputFrom(const Value& context) {
  ChatInput input;
  input.local_time_s = kGoldenTimeS;
  for (const auto& [name, value] : context.dict()->entries) {
    if (name == "messages") {
      input.messages = value;
    } else if (name == "tools") {
      input.tools = value;
    } else if (name == "add_generation_prompt") {
      input.add_generation_prompt = std::get<bool>(value.data());
    } else if (name == "bos_token") {
      input.bos_token = Text(value);
    } else if (name == "eos_token") {
      input.eos_token = Text(value);
    } else {
      input.variables.emplace_back(name, value);
    }
  }
  return input;
}

// Parses and renders; the status is of whichever failed.
inline StatusOr<ProvenancedText> RenderTemplate(const std::string& source, const ChatInput& input,
                                                const TemplateLimits& limits = {}) {
  HEADROOM_ASSIGN_OR_RETURN(const auto chat_template, ChatTemplate::Parse(source, limits));
  return chat_template->Render(input, TickingClock());
}

}  // namespace headroom::models::testing
