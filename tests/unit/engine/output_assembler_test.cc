#include "engine/output_assembler.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/philox.h"

namespace headroom::engine {
namespace {

constexpr int32_t kEos = 256;  // of the byte tokenizer below
constexpr int32_t kEndOfTurn = 257;

// Token ids stand for whole pieces: 300 + i is pieces[i]; below 256, a byte.
class PieceTokenizer final : public models::Tokenizer {
 public:
  explicit PieceTokenizer(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {
    for (int byte = 0; byte < 256; ++byte) {
      bytes_.push_back(std::string(1, static_cast<char>(byte)));
    }
  }
  int32_t vocab_size() const override { return 300 + static_cast<int32_t>(pieces_.size()); }
  int32_t bos_id() const override { return -1; }
  int32_t eos_id() const override { return kEos; }
  bool add_bos() const override { return false; }
  using Tokenizer::Encode;
  models::Encoding Encode(const models::ProvenancedText& text) const override { return {}; }
  std::string_view TokenBytes(int32_t id) const override {
    if (id < 256) {
      return bytes_[static_cast<size_t>(id)];
    }
    return id >= 300 ? std::string_view(pieces_[static_cast<size_t>(id - 300)])
                     : std::string_view();
  }
  std::string_view TokenPiece(int32_t id) const override { return TokenBytes(id); }
  models::TokenType Type(int32_t id) const override { return models::TokenType::kNormal; }
  int32_t FindSpecial(std::string_view piece) const override { return -1; }
  bool strips_leading_space() const override { return false; }

 private:
  std::vector<std::string> pieces_;
  std::vector<std::string> bytes_;
};

// What a reader sees: all text in order, and how it ended.
struct Read {
  std::string text;
  std::vector<std::string> deltas;
  std::optional<FinishReason> finish;
  std::optional<std::string> stop_string;
  std::optional<int32_t> stop_token;
};

Read Feed(OutputAssembler& assembler, const std::vector<int32_t>& tokens) {
  Read read;
  for (const int32_t token : tokens) {
    OutputAssembler::Result result = assembler.Add(token);
    read.text += result.text;
    read.deltas.push_back(result.text);
    read.finish = result.finish;
    read.stop_string = result.stop_string;
    read.stop_token = result.stop_token;
    if (result.finish) {
      break;
    }
  }
  return read;
}

Read FeedPieces(const std::vector<std::string>& pieces, const StopCriteria& stop) {
  const PieceTokenizer tokenizer(pieces);
  OutputAssembler assembler(&tokenizer, stop);
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < pieces.size(); ++i) {
    tokens.push_back(300 + static_cast<int32_t>(i));
  }
  return Feed(assembler, tokens);
}

StopCriteria StopAt(std::vector<std::string> strings) {
  StopCriteria stop;
  stop.max_new_tokens = 1000;
  stop.stop_strings = std::move(strings);
  return stop;
}

TEST(OutputAssemblerTest, TextComesAtOnceWithoutStops) {
  const Read read = FeedPieces({"Hello", ", ", "world"}, StopAt({}));
  EXPECT_EQ(read.deltas, (std::vector<std::string>{"Hello", ", ", "world"}));
  EXPECT_FALSE(read.finish);
}

TEST(OutputAssemblerTest, AStopStringMaySpanTokens) {
  const Read read = FeedPieces({"one S", "T", "OP two"}, StopAt({"STOP"}));
  EXPECT_EQ(read.text, "one ");
  EXPECT_EQ(read.finish, FinishReason::kStop);
  EXPECT_EQ(read.stop_string, "STOP");
  EXPECT_FALSE(read.stop_token);
}

TEST(OutputAssemblerTest, WhatCouldBeginAStopIsHeldBackAndReleased) {
  const Read read = FeedPieces({"one ST", "ILL"}, StopAt({"STOP"}));
  EXPECT_EQ(read.deltas, (std::vector<std::string>{"one ", "STILL"}));
}

TEST(OutputAssemblerTest, TheLongestOpenPrefixOfAnyStopIsHeld) {
  const Read read = FeedPieces({"xaab"}, StopAt({"ab!", "aabb", "b?"}));
  EXPECT_EQ(read.text, "x");  // "aab" could become "aabb"
}

TEST(OutputAssemblerTest, TheStopStringIsIncludedOnRequest) {
  StopCriteria stop = StopAt({"STOP"});
  stop.include_stop_string = true;
  EXPECT_EQ(FeedPieces({"one ST", "OP two"}, stop).text, "one STOP");
}

TEST(OutputAssemblerTest, TheStopThatIsCompleteFirstWins) {
  const Read read = FeedPieces({"xabcd"}, StopAt({"abcd", "bc"}));
  EXPECT_EQ(read.stop_string, "bc");
  EXPECT_EQ(read.text, "xa");
}

TEST(OutputAssemblerTest, OfTwoThatEndTogetherTheLongerWins) {
  for (const auto& stops :
       {std::vector<std::string>{"bc", "abc"}, std::vector<std::string>{"abc", "bc"}}) {
    const Read read = FeedPieces({"xabcd"}, StopAt(stops));
    EXPECT_EQ(read.stop_string, "abc");
    EXPECT_EQ(read.text, "x");
  }
}

TEST(OutputAssemblerTest, TheResultDoesNotDependOnHowTokensSplitTheText) {
  const Philox rng(5);
  uint64_t counter = 0;
  const auto draw = [&](uint32_t bound) { return rng.Block(counter++)[0] % bound; };
  for (int trial = 0; trial < 2000; ++trial) {
    std::string text;
    for (uint32_t i = 1 + draw(24); i > 0; --i) {
      text.push_back("ab"[draw(2)]);
    }
    std::vector<std::string> stops;
    for (uint32_t i = 1 + draw(3); i > 0; --i) {
      std::string stop;
      for (uint32_t k = 1 + draw(5); k > 0; --k) {
        stop.push_back("ab"[draw(2)]);
      }
      stops.push_back(stop);
    }
    // Byte by byte, by definition: the first prefix of the text that ends with a stop.
    std::string expected = text;
    std::optional<std::string> expected_stop;
    for (size_t end = 1; end <= text.size() && !expected_stop; ++end) {
      for (const std::string& stop : stops) {
        if (text.substr(0, end).ends_with(stop) &&
            (!expected_stop || stop.size() > expected_stop->size())) {
          expected_stop = stop;
          expected = text.substr(0, end - stop.size());
        }
      }
    }
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      const size_t length = 1 + draw(4);
      pieces.push_back(text.substr(at, length));
      at += length;
    }
    StopCriteria stop = StopAt(stops);
    stop.max_new_tokens = static_cast<int32_t>(pieces.size());  // so that the end flushes
    const Read read = FeedPieces(pieces, stop);
    ASSERT_EQ(read.text, expected) << text;
    ASSERT_EQ(read.stop_string, expected_stop) << text;
    ASSERT_EQ(read.finish, expected_stop ? FinishReason::kStop : FinishReason::kLength);
  }
}

TEST(OutputAssemblerTest, CharactersComeWhole) {
  const PieceTokenizer tokenizer({});
  const StopCriteria stop = StopAt({"é!"});
  OutputAssembler assembler(&tokenizer, stop);
  EXPECT_EQ(assembler.Add(0xE2).text, "");
  EXPECT_EQ(assembler.Add(0x82).text, "");
  EXPECT_EQ(assembler.Add(0xAC).text, "€");
  EXPECT_EQ(assembler.Add(0xC3).text, "");
  EXPECT_EQ(assembler.Add(0xA9).text, "");  // é could begin é!
  EXPECT_EQ(assembler.Add('?').text, "é?");
  EXPECT_EQ(assembler.Add(0xC3).text, "");
  EXPECT_EQ(assembler.Add(0xA8).text, "è");  // shares its first byte with é
}

TEST(OutputAssemblerTest, AnUnfinishedCharacterIsReplacedAtTheEnd) {
  const PieceTokenizer tokenizer({});
  StopCriteria stop = StopAt({});
  stop.max_new_tokens = 2;
  OutputAssembler assembler(&tokenizer, stop);
  EXPECT_EQ(assembler.Add('a').text, "a");
  const OutputAssembler::Result result = assembler.Add(0xE2);
  EXPECT_EQ(result.text, "\xEF\xBF\xBD");
  EXPECT_EQ(result.finish, FinishReason::kLength);
}

TEST(OutputAssemblerTest, EosEndsWithHeldTextAndNamesNothing) {
  const PieceTokenizer tokenizer({"one ST"});
  StopCriteria stop = StopAt({"STOP"});
  stop.eos_token_ids = {kEos, kEndOfTurn};
  for (const int32_t eos : stop.eos_token_ids) {
    OutputAssembler assembler(&tokenizer, stop);
    const Read read = Feed(assembler, {300, eos, 'x'});
    EXPECT_EQ(read.text, "one ST");
    EXPECT_EQ(read.finish, FinishReason::kStop);
    EXPECT_FALSE(read.stop_string);
    EXPECT_FALSE(read.stop_token);
    EXPECT_EQ(assembler.num_tokens(), 2);
  }
}

TEST(OutputAssemblerTest, AStopTokenIsNamedAndAddsNoText) {
  const PieceTokenizer tokenizer({});
  StopCriteria stop = StopAt({});
  stop.stop_token_ids = {'b'};
  OutputAssembler assembler(&tokenizer, stop);
  const Read read = Feed(assembler, {'a', 'b'});
  EXPECT_EQ(read.text, "a");
  EXPECT_EQ(read.stop_token, 'b');
}

TEST(OutputAssemblerTest, TheLastTokenEndsWithLengthUnlessItStops) {
  StopCriteria stop = StopAt({"STOP"});
  stop.max_new_tokens = 2;
  EXPECT_EQ(FeedPieces({"a", "b S"}, stop).finish, FinishReason::kLength);
  EXPECT_EQ(FeedPieces({"a", "b S"}, stop).text, "ab S");
  EXPECT_EQ(FeedPieces({"a", "bSTOP"}, stop).finish, FinishReason::kStop);
}

TEST(OutputAssemblerTest, TheFirstTokensEndNothing) {
  StopCriteria stop = StopAt({"b"});
  stop.min_new_tokens = 2;
  stop.eos_token_ids = {kEos};
  const PieceTokenizer tokenizer({});
  OutputAssembler assembler(&tokenizer, stop);
  const Read read = Feed(assembler, {'b', kEos, 'a', 'b', 'c'});
  EXPECT_EQ(read.text, "ba");
  EXPECT_EQ(read.stop_string, "b");
  EXPECT_EQ(assembler.num_tokens(), 4);
}

TEST(OutputAssemblerTest, AStopThatIsCompleteTooEarlyIsPassedOverForGood) {
  // "a" is complete within the first token and still held because it could begin "abc".
  StopCriteria stop = StopAt({"a", "abc"});
  stop.min_new_tokens = 1;
  const Read read = FeedPieces({"a", "x", "-abc"}, stop);
  EXPECT_EQ(read.text, "ax-");
  EXPECT_EQ(read.stop_string, "a");
}

TEST(OutputAssemblerTest, WithoutATokenizerThereAreOnlyIds) {
  StopCriteria stop = StopAt({"a"});
  stop.eos_token_ids = {kEos};
  OutputAssembler assembler(nullptr, stop);
  const Read read = Feed(assembler, {'a', 'a', kEos});
  EXPECT_EQ(read.text, "");
  EXPECT_EQ(read.finish, FinishReason::kStop);
  EXPECT_EQ(assembler.Flush(), "");
}

TEST(OutputAssemblerTest, FlushGivesWhatIsHeld) {
  const PieceTokenizer tokenizer({"one ST"});
  const StopCriteria stop = StopAt({"STOP"});
  OutputAssembler assembler(&tokenizer, stop);
  EXPECT_EQ(assembler.Add(300).text, "one ");
  EXPECT_EQ(assembler.Flush(), "ST");
  EXPECT_EQ(assembler.Flush(), "");
}

}  // namespace
}  // namespace headroom::engine
