#include "models/chat_template/text_ops.h"

#include <cstring>
#include <utility>

#include "models/chat_template/provenance.h"
#include "models/chat_template/unicode.h"

namespace headroom::models::jinja {

namespace {

constexpr uint32_t kSharpS = 0xDF;

using Range = std::pair<size_t, size_t>;  // begin, end in bytes

// Adds a piece to a list that may become long.
Status AddPiece(Budget& budget, std::vector<Range>& ranges, size_t begin, size_t end) {
  ranges.emplace_back(begin, end);
  return budget.Allocate(2 * sizeof(Range));
}

bool HasCodePoint(std::string_view chars, uint32_t value) {
  for (size_t i = 0; i < chars.size();) {
    const CodePoint point = CodePointAt(chars, i);
    if (point.value == value) {
      return true;
    }
    i += point.size;
  }
  return false;
}

bool PartsFilterTitle(uint32_t c) {
  return IsSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
}

size_t PreviousCodePoint(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && end - begin < 4 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) {
    --begin;
  }
  return begin + CodePointAt(text, begin).size == end ? begin : end - 1;
}

// Cuts [begin, end) ranges out of `text` as values.
StatusOr<ValueList> Pieces(Budget& budget, const ProvenancedText& text,
                           const std::vector<Range>& ranges) {
  ValueList pieces;
  pieces.reserve(ranges.size());
  for (const auto& [begin, end] : ranges) {
    HEADROOM_ASSIGN_OR_RETURN(Value piece, NewText(budget, Slice(text, begin, end)));
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

StatusOr<std::vector<Range>> SplitAtSpace(Budget& budget, std::string_view text,
                                          int64_t max_splits) {
  std::vector<Range> ranges;
  size_t at = SkipSpaceForward(text, 0);
  while (at < text.size()) {
    if (max_splits >= 0 && static_cast<int64_t>(ranges.size()) == max_splits) {
      ranges.emplace_back(at, SkipSpaceBackward(text, text.size()));
      break;
    }
    size_t end = at;
    while (end < text.size()) {
      const CodePoint point = CodePointAt(text, end);
      if (IsSpace(point.value)) {
        break;
      }
      end += point.size;
    }
    HEADROOM_RETURN_IF_ERROR(AddPiece(budget, ranges, at, end));
    at = SkipSpaceForward(text, end);
  }
  return ranges;
}

StatusOr<std::vector<Range>> SplitAtSpaceFromRight(Budget& budget, std::string_view text,
                                                   int64_t max_splits) {
  HEADROOM_ASSIGN_OR_RETURN(std::vector<Range> all, SplitAtSpace(budget, text, -1));
  const auto size = static_cast<int64_t>(all.size());
  if (max_splits < 0 || size - 1 <= max_splits) {
    return all;
  }
  std::vector<Range> ranges;
  // Python keeps the white space in front of what was not split.
  ranges.emplace_back(0, all[static_cast<size_t>(size - max_splits - 1)].second);
  ranges.insert(ranges.end(), all.end() - max_splits, all.end());
  return ranges;
}

StatusOr<std::vector<Range>> SplitAtText(Budget& budget, std::string_view text,
                                         std::string_view separator, int64_t max_splits,
                                         bool from_right) {
  std::vector<Range> cuts;
  for (size_t at = FindBytes(text, separator, 0); at != std::string_view::npos;
       at = FindBytes(text, separator, at + separator.size())) {
    if (!from_right && max_splits >= 0 && static_cast<int64_t>(cuts.size()) == max_splits) {
      break;
    }
    HEADROOM_RETURN_IF_ERROR(AddPiece(budget, cuts, at, at + separator.size()));
  }
  if (from_right && max_splits >= 0 && static_cast<int64_t>(cuts.size()) > max_splits) {
    cuts.erase(cuts.begin(), cuts.end() - max_splits);
  }
  // The pieces are what lies between the cuts.
  size_t begin = 0;
  for (Range& cut : cuts) {
    const Range piece(begin, cut.first);
    begin = cut.second;
    cut = piece;
  }
  cuts.emplace_back(begin, text.size());
  return cuts;
}

bool IsLineBreak(uint32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

StatusOr<std::vector<Range>> LineRanges(Budget& budget, std::string_view text, bool keep_ends) {
  std::vector<Range> ranges;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = CodePointAt(text, at);
    if (!IsLineBreak(point.value)) {
      at += point.size;
      continue;
    }
    size_t after = at + point.size;
    if (point.value == '\r' && after < text.size() && text[after] == '\n') {
      ++after;
    }
    HEADROOM_RETURN_IF_ERROR(AddPiece(budget, ranges, begin, keep_ends ? after : at));
    begin = at = after;
  }
  if (begin < text.size()) {
    ranges.emplace_back(begin, text.size());
  }
  return ranges;
}

}  // namespace

size_t FindBytes(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) {
    return std::string_view::npos;
  }
  if (needle.empty()) {
    return from;
  }
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

ProvenancedText ChangeCase(const ProvenancedText& text, CaseChange change) {
  ProvenancedText out;
  bool at_start = true;  // of the text, or of a word for the title forms
  std::string piece;
  for (size_t i = 0; i < text.text.size();) {
    const CodePoint point = CodePointAt(text.text, i);
    const bool upper = change == CaseChange::kUpper || (change != CaseChange::kLower && at_start);
    const uint32_t mapped = upper ? ToUpper(point.value) : ToLower(point.value);
    if (change == CaseChange::kTitle) {
      at_start = !IsCased(point.value);
    } else if (change == CaseChange::kFilterTitle) {
      at_start = PartsFilterTitle(point.value);
    } else {
      at_start = false;
    }
    piece.clear();
    if (point.value == kSharpS && upper) {
      piece = change == CaseChange::kUpper ? "SS" : "Ss";  // no single character is its upper case
    } else if (mapped == point.value) {
      piece = text.text.substr(i, point.size);
    } else {
      AppendUtf8(piece, mapped);
    }
    AppendBytes(out, piece, TouchesMessage(text, i, i + point.size));
    i += point.size;
  }
  return out;
}

ProvenancedText Strip(const ProvenancedText& text, std::optional<std::string_view> chars, bool left,
                      bool right) {
  const std::string_view all = text.text;
  size_t begin = 0;
  size_t end = all.size();
  if (!chars) {
    begin = left ? SkipSpaceForward(all, 0) : 0;
    end = right ? begin + SkipSpaceBackward(all.substr(begin), all.size() - begin) : end;
    return Slice(text, begin, end);
  }
  while (left && begin < end) {
    const CodePoint point = CodePointAt(all, begin);
    if (!HasCodePoint(*chars, point.value)) {
      break;
    }
    begin += point.size;
  }
  while (right && end > begin) {
    const size_t previous = PreviousCodePoint(all, end);
    if (!HasCodePoint(*chars, CodePointAt(all, previous).value)) {
      break;
    }
    end = previous;
  }
  return Slice(text, begin, end);
}

StatusOr<ValueList> Split(Budget& budget, const ProvenancedText& text,
                          std::optional<std::string_view> separator, int64_t max_splits,
                          bool from_right) {
  StatusOr<std::vector<Range>> ranges =
      separator    ? SplitAtText(budget, text.text, *separator, max_splits, from_right)
      : from_right ? SplitAtSpaceFromRight(budget, text.text, max_splits)
                   : SplitAtSpace(budget, text.text, max_splits);
  if (!ranges.ok()) {
    return ranges.status();
  }
  return Pieces(budget, text, *ranges);
}

StatusOr<ValueList> SplitLines(Budget& budget, const ProvenancedText& text, bool keep_ends) {
  HEADROOM_ASSIGN_OR_RETURN(const std::vector<Range> lines,
                            LineRanges(budget, text.text, keep_ends));
  return Pieces(budget, text, lines);
}

StatusOr<ProvenancedText> Replace(Budget& budget, const ProvenancedText& text,
                                  const ProvenancedText& from, const ProvenancedText& to,
                                  int64_t max_count) {
  HEADROOM_RETURN_IF_ERROR(budget.Allocate(MemoryBytes(text)));
  ProvenancedText out;
  size_t begin = 0;
  size_t search = 0;
  for (int64_t count = 0; max_count < 0 || count < max_count; ++count) {
    const size_t at = FindBytes(text.text, from.text, search);
    if (at == std::string::npos) {
      break;
    }
    HEADROOM_RETURN_IF_ERROR(budget.Allocate(MemoryBytes(to)));
    AppendSlice(out, text, begin, at);
    AppendText(out, to);
    begin = at + from.text.size();
    search = begin;
    if (from.text.empty()) {  // an empty pattern matches before every character and at the end
      if (at == text.text.size()) {
        break;
      }
      search = at + CodePointAt(text.text, at).size;
    }
  }
  AppendSlice(out, text, begin, text.text.size());
  return out;
}

ProvenancedText EscapeHtml(const ProvenancedText& text) {
  ProvenancedText out;
  size_t begin = 0;
  for (size_t i = 0; i < text.text.size(); ++i) {
    const char c = text.text[i];
    const std::string_view entity = c == '&'    ? "&amp;"
                                    : c == '<'  ? "&lt;"
                                    : c == '>'  ? "&gt;"
                                    : c == '\'' ? "&#39;"
                                    : c == '"'  ? "&#34;"
                                                : "";
    if (entity.empty()) {
      continue;
    }
    AppendSlice(out, text, begin, i);
    AppendBytes(out, entity, TouchesMessage(text, i, i + 1));
    begin = i + 1;
  }
  AppendSlice(out, text, begin, text.text.size());
  return out;
}

StatusOr<ProvenancedText> Indent(Budget& budget, const ProvenancedText& text,
                                 const ProvenancedText& width, bool first, bool blank) {
  // The newline that Jinja adds before splitting keeps an empty last line.
  ProvenancedText source = text;
  AppendBytes(source, "\n", true);
  HEADROOM_RETURN_IF_ERROR(budget.Allocate(MemoryBytes(source)));
  HEADROOM_ASSIGN_OR_RETURN(const std::vector<Range> lines,
                            LineRanges(budget, source.text, /*keep_ends=*/false));
  ProvenancedText out;
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto& [begin, end] = lines[i];
    if (i > 0) {
      AppendBytes(out, "\n", true);
    }
    if (i == 0 ? first : (blank || begin != end)) {
      HEADROOM_RETURN_IF_ERROR(budget.Allocate(MemoryBytes(width)));
      AppendText(out, width);
    }
    AppendSlice(out, source, begin, end);
  }
  return out;
}

ProvenancedText SliceCodePoints(const ProvenancedText& text, int64_t begin, int64_t count,
                                int64_t step) {
  if (count <= 0) {
    return {};
  }
  const std::string& all = text.text;
  if (step == 1) {
    size_t first = 0;
    for (int64_t i = 0; i < begin; ++i) {
      first += CodePointAt(all, first).size;
    }
    size_t last = first;
    for (int64_t i = 0; i < count; ++i) {
      last += CodePointAt(all, last).size;
    }
    return Slice(text, first, last);
  }
  std::vector<size_t> offsets;  // of every code point, and the end
  for (size_t i = 0; i < all.size(); i += CodePointAt(all, i).size) {
    offsets.push_back(i);
  }
  offsets.push_back(all.size());
  ProvenancedText out;
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(begin + i * step);
    AppendSlice(out, text, offsets[at], offsets[at + 1]);
  }
  return out;
}

}  // namespace headroom::models::jinja
