// Small templates against what Jinja2 renders from them (jinja_cases.json, made by
// make_jinja_cases.py): expressions, filters, methods, statements, white space, refusals.
#include "tests/support/test_data.h"
#include "tests/unit/models/chat_template_test_util.h"

namespace headroom::models::testing {
namespace {

TEST(JinjaCasesTest, RenderAsJinja2DoesOrAreRefusedLikeThere) {
  const Value file = Json(ReadFile(headroom::testing::SourcePath("tests/golden/jinja_cases.json")));
  const Value* cases = Find(file, "cases");
  ASSERT_NE(cases, nullptr);
  ASSERT_GT(cases->list()->items.size(), 100u);
  for (const Value& record : cases->list()->items) {
    const std::string source = Text(*Find(record, "template"));
    SCOPED_TRACE(source);
    ChatInput input;
    for (const auto& [name, value] : Find(file, "context")->dict()->entries) {
      input.variables.emplace_back(name, value);
    }
    const auto rendered = RenderTemplate(source, input);
    if (const Value* expected = Find(record, "expected")) {
      EXPECT_TRUE(rendered.ok()) << rendered.status();
      if (rendered.ok()) {
        EXPECT_EQ(rendered->text, Text(*expected));
      }
    } else {
      EXPECT_FALSE(rendered.ok()) << "Jinja2 refused: " << Text(*Find(record, "error"))
                                  << "\ngot: " << (rendered.ok() ? rendered->text : "");
    }
  }
}

}  // namespace
}  // namespace headroom::models::testing
