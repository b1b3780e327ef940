// Joining and cutting text while keeping which bytes came from a message.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "models/tokenizer/tokenizer.h"

namespace headroom::models::jinja {

// Appends `bytes`, all of one origin.
void AppendBytes(ProvenancedText& out, std::string_view bytes, bool from_message);
// Appends bytes [begin, end) of `source` with their origin. Needs begin <= end <= size.
void AppendSlice(ProvenancedText& out, const ProvenancedText& source, size_t begin, size_t end);
void AppendText(ProvenancedText& out, const ProvenancedText& source);

ProvenancedText Slice(const ProvenancedText& source, size_t begin, size_t end);

// Text that is not a literal of the template, whatever it was computed from.
ProvenancedText FromMessage(std::string text);

// Bytes [begin, end) hold at least one message byte.
bool TouchesMessage(const ProvenancedText& text, size_t begin, size_t end);

// What the text costs in memory.
int64_t MemoryBytes(const ProvenancedText& text);

}  // namespace headroom::models::jinja
