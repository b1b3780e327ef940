#include "models/chat_template/chat_template.h"

#include "models/chat_template/interpreter.h"
#include "models/chat_template/lexer.h"
#include "models/chat_template/parser.h"

namespace headroom::models {

namespace {

class JinjaTemplate final : public ChatTemplate {
 public:
  JinjaTemplate(jinja::Program program, const TemplateLimits& limits)
      : program_(std::move(program)), limits_(limits) {}

  StatusOr<ProvenancedText> Render(const ChatInput& input, const Clock& clock) const override {
    return jinja::Interpreter(program_, limits_, input, clock).Run();
  }

 private:
  jinja::Program program_;
  TemplateLimits limits_;
};

}  // namespace

StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Parse(std::string source,
                                                            const TemplateLimits& limits) {
  if (static_cast<int64_t>(source.size()) > limits.max_source_bytes) {
    return InvalidArgument("the chat template has {} bytes, wanted at most {}", source.size(),
                           limits.max_source_bytes);
  }
  HEADROOM_ASSIGN_OR_RETURN(std::vector<jinja::Token> tokens, jinja::Tokenize(source));
  jinja::Parser parser(std::move(tokens), limits.max_depth);
  HEADROOM_ASSIGN_OR_RETURN(jinja::Program program, parser.ParseProgram());
  return std::make_unique<JinjaTemplate>(std::move(program), limits);
}

}  // namespace headroom::models
