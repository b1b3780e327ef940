#include "models/chat_template/provenance.h"

#include <algorithm>

namespace headroom::models::jinja {

namespace {

// Ranges stay ascending and do not touch: a range that continues the last one extends it.
void AddRange(ProvenancedText& out, int64_t begin, int64_t end) {
  if (begin == end) {
    return;
  }
  if (!out.message_ranges.empty() && out.message_ranges.back().end == begin) {
    out.message_ranges.back().end = end;
    return;
  }
  out.message_ranges.push_back({begin, end});
}

// The first range that ends after `offset`.
auto FirstRangeAfter(const ProvenancedText& text, int64_t offset) {
  return std::upper_bound(text.message_ranges.begin(), text.message_ranges.end(), offset,
                          [](int64_t at, const ByteRange& range) { return at < range.end; });
}

}  // namespace

void AppendBytes(ProvenancedText& out, std::string_view bytes, bool from_message) {
  const auto begin = static_cast<int64_t>(out.text.size());
  out.text.append(bytes);
  if (from_message) {
    AddRange(out, begin, static_cast<int64_t>(out.text.size()));
  }
}

void AppendSlice(ProvenancedText& out, const ProvenancedText& source, size_t begin, size_t end) {
  const auto base = static_cast<int64_t>(out.text.size());
  const auto first = static_cast<int64_t>(begin);
  const auto last = static_cast<int64_t>(end);
  out.text.append(source.text, begin, end - begin);
  for (auto range = FirstRangeAfter(source, first);
       range != source.message_ranges.end() && range->begin < last; ++range) {
    AddRange(out, base + std::max(range->begin, first) - first,
             base + std::min(range->end, last) - first);
  }
}

void AppendText(ProvenancedText& out, const ProvenancedText& source) {
  AppendSlice(out, source, 0, source.text.size());
}

ProvenancedText Slice(const ProvenancedText& source, size_t begin, size_t end) {
  ProvenancedText out;
  AppendSlice(out, source, begin, end);
  return out;
}

ProvenancedText FromMessage(std::string text) {
  ProvenancedText out;
  out.text = std::move(text);
  AddRange(out, 0, static_cast<int64_t>(out.text.size()));
  return out;
}

bool TouchesMessage(const ProvenancedText& text, size_t begin, size_t end) {
  const auto range = FirstRangeAfter(text, static_cast<int64_t>(begin));
  return range != text.message_ranges.end() && range->begin < static_cast<int64_t>(end);
}

int64_t MemoryBytes(const ProvenancedText& text) {
  return static_cast<int64_t>(text.text.size() + text.message_ranges.size() * sizeof(ByteRange) +
                              64);
}

}  // namespace headroom::models::jinja
