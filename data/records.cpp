// SPDX-License-Identifier: Apache-2.0
// What is supervised: all of a text, the completion of a prompt, the assistant's words of a chat.
#include "data/records.h"

#include <nlohmann/json.hpp>
#include <string>

#include "data/tokenizer.h"
#include "kernels/error.h"

namespace bdlm {
namespace {

using nlohmann::json;

void append(Document& document, std::string_view text, bool supervised) {
  const std::vector<std::int32_t> tokens = ByteTokenizer::encode(text);
  document.tokens.insert(document.tokens.end(), tokens.begin(), tokens.end());
  document.loss_mask.resize(document.tokens.size(), supervised ? 1 : 0);
}

void append_end(Document& document, bool supervised) {
  document.tokens.push_back(ByteTokenizer::end_of_text);
  document.loss_mask.push_back(supervised ? 1 : 0);
}

const std::string& string_at(const json& object, const char* key) {
  const auto found = object.find(key);
  require(found != object.end() && found->is_string(), "\"{}\" must be a string", key);
  return found->get_ref<const std::string&>();
}

/// "<|role|>\n" and the content of each message; the assistant's content is supervised together
/// with the end of text that closes it, so that a model learns when to stop.
Document chat_document(const json& messages) {
  require(messages.is_array(), "\"messages\" must be an array of objects with role and content");
  Document document;
  bool open = false;
  for (const json& message : messages) {
    require(message.is_object(), "a message must be an object with \"role\" and \"content\"");
    const std::string& role = string_at(message, "role");
    const std::string& content = string_at(message, "content");
    append(document, "<|" + role + "|>\n", false);
    open = role != "assistant";
    append(document, content, !open);
    if (open)
      append(document, "\n", false);
    else
      append_end(document, true);
  }
  if (open) append_end(document, false);
  return document;
}

Document token_document(const json& object, std::int64_t vocab_size, std::int64_t mask_token_id) {
  const json& tokens = object["tokens"];
  require(tokens.is_array(), "\"tokens\" must be an array of integers");
  Document document;
  for (const json& token : tokens) {
    require(token.is_number_integer(), "\"tokens\" must be an array of integers");
    const bool fits = !token.is_number_unsigned() ||
                      token.get<std::uint64_t>() < static_cast<std::uint64_t>(vocab_size);
    const auto id = fits ? token.get<std::int64_t>() : -1;
    require(id >= 0 && id < vocab_size, "token id {} is not below --vocab-size {}", token.dump(),
            vocab_size);
    require(id != mask_token_id, "token id {} is the mask id, which may not occur in data", id);
    document.tokens.push_back(static_cast<std::int32_t>(id));
  }
  document.loss_mask.assign(document.tokens.size(), 1);
  const auto mask = object.find("loss_mask");
  if (mask == object.end()) return document;
  require(mask->is_array() && mask->size() == document.tokens.size(),
          "\"loss_mask\" must be an array as long as \"tokens\"");
  for (std::size_t i = 0; i < mask->size(); ++i) {
    const json& value = (*mask)[i];
    require(value == 0 || value == 1 || value.is_boolean(), "\"loss_mask\" holds {}, not 0 or 1",
            value.dump());
    document.loss_mask[i] = value == 1 || value == true;
  }
  return document;
}

}  // namespace

Document text_document(std::string_view text) {
  Document document;
  const std::size_t begin = text.find_first_not_of("\r\n");
  if (begin == std::string_view::npos) return document;
  const std::size_t end = text.find_last_not_of("\r\n") + 1;
  append(document, text.substr(begin, end - begin), true);
  append_end(document, true);
  return document;
}

Document json_document(std::string_view line, std::int64_t vocab_size, std::int64_t mask_token_id) {
  json object;
  try {
    object = json::parse(line);
  } catch (const json::parse_error& error) {
    fail("not valid JSON at byte {}", error.byte);
  }
  require(object.is_object(), "not a JSON object");
  if (object.contains("tokens")) {
    require(vocab_size > 0, "\"tokens\" needs --vocab-size, the size of their vocabulary");
    return token_document(object, vocab_size, mask_token_id);
  }
  require(vocab_size == 0, "no \"tokens\", which --vocab-size asks for");
  if (object.contains("messages")) return chat_document(object["messages"]);
  if (object.contains("prompt") || object.contains("completion")) {
    Document document;
    append(document, string_at(object, "prompt"), false);
    append(document, string_at(object, "completion"), true);
    append_end(document, true);
    return document;
  }
  require(object.contains("text"),
          "none of the keys \"text\", \"prompt\" and \"completion\", \"messages\", \"tokens\"");
  return text_document(string_at(object, "text"));
}

}  // namespace bdlm
