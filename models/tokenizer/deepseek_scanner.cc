#include "models/tokenizer/deepseek_scanner.h"

#include <algorithm>
#include <iterator>

#include "models/tokenizer/scanner.h"

namespace headroom::models {
namespace {

struct CodePointRange {
  char32_t first = 0;
  char32_t last = 0;  // inclusive
};

// The cased letters as the pattern in deepseek-llm's tokenizer.json spells them out.
constexpr CodePointRange kCasedLetters[] = {
    {0x41, 0x5A},       {0x61, 0x7A},       {0xB5, 0xB5},       {0xC0, 0xD6},
    {0xD8, 0xF6},       {0xF8, 0x1BA},      {0x1BC, 0x1BF},     {0x1C4, 0x293},
    {0x295, 0x2AF},     {0x370, 0x373},     {0x376, 0x376},     {0x377, 0x377},
    {0x37B, 0x37D},     {0x37F, 0x37F},     {0x386, 0x386},     {0x388, 0x38A},
    {0x38C, 0x38C},     {0x38E, 0x3A1},     {0x3A3, 0x3F5},     {0x3F7, 0x481},
    {0x48A, 0x52F},     {0x531, 0x556},     {0x10A0, 0x10C5},   {0x13A0, 0x13F5},
    {0x13F8, 0x13FD},   {0x1C90, 0x1CBA},   {0x1CBD, 0x1CBF},   {0x1D00, 0x1D2B},
    {0x1D6B, 0x1D77},   {0x1D79, 0x1D9A},   {0x1E00, 0x1F15},   {0x1F18, 0x1F1D},
    {0x1F20, 0x1F45},   {0x1F48, 0x1F4D},   {0x1F50, 0x1F57},   {0x1F59, 0x1F59},
    {0x1F5B, 0x1F5B},   {0x1F5D, 0x1F5D},   {0x1F5F, 0x1F7D},   {0x1F80, 0x1FB4},
    {0x1FB6, 0x1FBC},   {0x1FBE, 0x1FBE},   {0x1FC2, 0x1FC4},   {0x1FC6, 0x1FCC},
    {0x1FD0, 0x1FD3},   {0x1FD6, 0x1FDB},   {0x1FE0, 0x1FEC},   {0x1FF2, 0x1FF4},
    {0x1FF6, 0x1FFC},   {0x2102, 0x2102},   {0x2107, 0x2107},   {0x210A, 0x2113},
    {0x2115, 0x2115},   {0x2119, 0x211D},   {0x2124, 0x2124},   {0x2126, 0x2126},
    {0x2128, 0x2128},   {0x212A, 0x212D},   {0x212F, 0x2134},   {0x2139, 0x2139},
    {0x213C, 0x213F},   {0x2145, 0x2149},   {0x214E, 0x214E},   {0x2183, 0x2183},
    {0x2184, 0x2184},   {0x2C00, 0x2C7B},   {0x2C7E, 0x2CE4},   {0x2CEB, 0x2CEE},
    {0x2CF2, 0x2CF2},   {0x2CF3, 0x2CF3},   {0xA640, 0xA66D},   {0xA680, 0xA69B},
    {0xA722, 0xA76F},   {0xA771, 0xA787},   {0xA78B, 0xA78E},   {0xAB70, 0xABBF},
    {0xFB00, 0xFB06},   {0xFB13, 0xFB17},   {0xFF21, 0xFF3A},   {0xFF41, 0xFF5A},
    {0x10400, 0x1044F}, {0x104B0, 0x104D3}, {0x104D8, 0x104FB}, {0x10C80, 0x10CB2},
    {0x10CC0, 0x10CF2}, {0x118A0, 0x118DF}, {0x1E900, 0x1E943},
};

// ASCII and full-width punctuation, quotation marks, ideographic space, comma and full stop. The
// ASCII range holds letters too; the cut before this one has taken those.
constexpr CodePointRange kPunctuation[] = {
    {0x21, 0x2F},     {0x3A, 0x7E},     {0x2018, 0x201F},
    {0x3000, 0x3002}, {0xFF01, 0xFF0F}, {0xFF1A, 0xFF5E},
};

constexpr CodePointRange kEastAsian[] = {{0x800, 0x9FA5}, {0xAC00, 0xD7FF}};

template <size_t kSize>
bool IsIn(const CodePointRange (&ranges)[kSize], char32_t code_point) {
  const CodePointRange* range =
      std::lower_bound(std::begin(ranges), std::end(ranges), code_point,
                       [](const CodePointRange& r, char32_t c) { return r.last < c; });
  return range != std::end(ranges) && range->first <= code_point;
}

// The end of the run of characters that satisfy `is_member`.
template <typename IsMember>
size_t EndOf(std::string_view text, size_t position, const IsMember& is_member) {
  while (position < text.size()) {
    const ScannedChar c = CharAt(text, position);
    if (!is_member(c)) {
      break;
    }
    position += c.num_bytes;
  }
  return position;
}

// \s?[members]+ at `position`: its end, or `position` when it does not match there.
template <typename IsMember>
size_t EndOfSpacedRun(std::string_view text, size_t position, const IsMember& is_member) {
  const ScannedChar first = CharAt(text, position);
  if (first.char_class == CharClass::kSpace) {
    const size_t second = position + first.num_bytes;
    const size_t end = EndOf(text, second, is_member);
    if (end > second) {
      return end;
    }
  }
  return EndOf(text, position, is_member);
}

// Cuts each word of `ends` at the matches of one pattern. `end_of_match(word, position)` returns
// `position` where the pattern does not match.
template <typename Match>
void Cut(std::string_view text, const Match& end_of_match, std::vector<size_t>* ends) {
  std::vector<size_t> cut;
  cut.reserve(ends->size());
  size_t begin = 0;
  for (const size_t end : *ends) {
    const std::string_view word = text.substr(begin, end - begin);
    size_t gap_begin = 0;
    for (size_t position = 0; position < word.size();) {
      const size_t match_end = end_of_match(word, position);
      if (match_end == position) {
        position += CharAt(word, position).num_bytes;
        continue;
      }
      if (position > gap_begin) {
        cut.push_back(begin + position);
      }
      cut.push_back(begin + match_end);
      position = match_end;
      gap_begin = match_end;
    }
    if (gap_begin < word.size()) {
      cut.push_back(end);
    }
    begin = end;
  }
  ends->swap(cut);
}

// \s+$ : cuts the white space at the end of each word off. Apart from Cut because a search from
// each position would be quadratic in a long run of spaces.
void CutTrailingSpace(std::string_view text, std::vector<size_t>* ends) {
  std::vector<size_t> cut;
  cut.reserve(ends->size());
  size_t begin = 0;
  for (const size_t end : *ends) {
    size_t space_begin = begin;
    for (size_t position = begin; position < end;) {
      const ScannedChar c = CharAt(text.substr(0, end), position);
      position += c.num_bytes;
      space_begin = c.char_class == CharClass::kSpace ? space_begin : position;
    }
    if (space_begin > begin && space_begin < end) {
      cut.push_back(space_begin);
    }
    cut.push_back(end);
    begin = end;
  }
  ends->swap(cut);
}

}  // namespace

void PreTokenizeDeepSeekLlm(std::string_view text, std::vector<size_t>* ends) {
  if (text.empty()) {
    return;
  }
  const auto is_cased = [](const ScannedChar& c) { return IsIn(kCasedLetters, c.code_point); };
  const auto is_punctuation = [](const ScannedChar& c) { return IsIn(kPunctuation, c.code_point); };
  const auto is_east_asian = [](const ScannedChar& c) { return IsIn(kEastAsian, c.code_point); };
  const auto is_number = [](const ScannedChar& c) { return c.char_class == CharClass::kNumber; };

  ends->push_back(text.size());
  Cut(
      text,
      [](std::string_view word, size_t position) {
        return position + (word[position] == '\n' || word[position] == '\r' ? 1 : 0);
      },
      ends);
  Cut(
      text,
      [&](std::string_view word, size_t position) {
        return EndOfSpacedRun(word, position, is_cased);
      },
      ends);
  Cut(
      text,
      [&](std::string_view word, size_t position) {
        return EndOfSpacedRun(word, position, is_punctuation);
      },
      ends);
  CutTrailingSpace(text, ends);
  Cut(
      text,
      [&](std::string_view word, size_t position) { return EndOf(word, position, is_east_asian); },
      ends);
  Cut(
      text,
      [&](std::string_view word, size_t position) { return EndOf(word, position, is_number); },
      ends);
}

}  // namespace headroom::models
