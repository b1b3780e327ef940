#include "profiler/evaluation/documents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headroom::profiler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const DocumentCut kAll = {.num_tokens = 3, .max_documents = 100};

// A byte tokenizer with a BOS, which plain text wants or not.
std::unique_ptr<models::Tokenizer> ByteTokenizer() {
  return models::CreateByteTokenizer({"<bos>", "<eos>"}, 0, 1);
}

TEST(DocumentsTest, BytesAreCutIntoWholeBlocks) {
  const auto documents = CutBytes("abcdefgh", "t", kAll);
  ASSERT_TRUE(documents.ok());
  ASSERT_EQ(documents->size(), 2u);
  EXPECT_THAT((*documents)[1].ids, ElementsAre('d', 'e', 'f'));
  EXPECT_EQ((*documents)[1].id, "t#3-1");
}

TEST(DocumentsTest, FewerDocumentsSpreadOverTheText) {
  const auto documents = CutBytes("aaabbbcccdddeeefff", "t", {.num_tokens = 3, .max_documents = 3});
  ASSERT_TRUE(documents.ok());
  ASSERT_EQ(documents->size(), 3u);
  EXPECT_EQ((*documents)[0].ids[0], 'a');
  EXPECT_EQ((*documents)[1].ids[0], 'c');
  EXPECT_EQ((*documents)[2].ids[0], 'e');
}

TEST(DocumentsTest, BytesThatAreNotAsciiAreLeftOut) {
  const auto documents = CutBytes(
      "a\xc3\xa9"
      "bc",
      "t", kAll);
  ASSERT_TRUE(documents.ok());
  EXPECT_THAT((*documents)[0].ids, ElementsAre('a', 'b', 'c'));
}

TEST(DocumentsTest, TextGetsABosWhereTheModelWantsOneAndKeepsItsLength) {
  const auto tokenizer = ByteTokenizer();
  const auto documents = CutText("abcdefgh", "t", *tokenizer, kAll);
  ASSERT_TRUE(documents.ok());
  for (const Document& document : *documents) {
    EXPECT_EQ(document.ids.size(), 3u);
    EXPECT_EQ(document.ids[0] == tokenizer->bos_id(), tokenizer->add_bos());
  }
}

TEST(DocumentsTest, ATextTooShortIsAnErrorWithBothNumbers) {
  const auto documents = CutBytes("ab", "short.txt", kAll);
  EXPECT_THAT(StatusMessage(documents.status()), HasSubstr("short.txt: the file has 2 tokens"));
}

TEST(IdDocumentsTest, ReadsListsAndObjectsAndCutsLongOnes) {
  const auto documents =
      ParseIdDocuments("[1,2,3,4]\n\n{\"id\": \"x\", \"ids\": [5]}\n", "f", 10, kAll);
  ASSERT_TRUE(documents.ok()) << StatusMessage(documents.status());
  ASSERT_EQ(documents->size(), 2u);
  EXPECT_THAT((*documents)[0].ids, ElementsAre(1, 2, 3));
  EXPECT_EQ((*documents)[0].id, "f#0");
  EXPECT_EQ((*documents)[1].id, "x");
}

TEST(IdDocumentsTest, TakesTheFirstLinesOnly) {
  const auto documents = ParseIdDocuments("[1]\n[2]\n[3]\n", "f", 10, {3, 2});
  ASSERT_TRUE(documents.ok());
  EXPECT_EQ(documents->size(), 2u);
}

TEST(IdDocumentsTest, FaultsNameTheLine) {
  for (const auto& [text, fault] : std::vector<std::pair<std::string, std::string>>{
           {"[1]\n[2", "f:2: wanted one JSON value"},
           {"[1, 10]", "f:1: entry 1: wanted a token id from 0 to 9"},
           {"[-1]", "f:1: entry 0"},
           {"[1.5]", "f:1: entry 0"},
           {"[1e30]", "f:1: entry 0"},
           {"[99999999999999999999]", "f:1: entry 0"},
           {"[]", "f:1: wanted a list"},
           {"{\"id\": 3}", "f:1: wanted an object with a list of token ids \"ids\""},
           {"{\"ids\": [1], \"id\": 3}", "f:1: wanted an object with a string \"id\""},
           {"\"ids\"", "f:1: wanted"},
           {"[[[[[[[[[[1]]]]]]]]]]", "f:1: nested"},
           {"", "f: wanted at least one line"},
       }) {
    const auto documents = ParseIdDocuments(text, "f", 10, kAll);
    ASSERT_FALSE(documents.ok()) << text;
    EXPECT_THAT(StatusMessage(documents.status()), HasSubstr(fault)) << text;
  }
}

TEST(ReadInputTest, NamesTheFlagAndThePath) {
  const auto text = ReadInput("/no/such/file", "--text");
  EXPECT_THAT(StatusMessage(text.status()), HasSubstr("--text: cannot read /no/such/file"));
}

}  // namespace
}  // namespace headroom::profiler
