// SPDX-License-Identifier: Apache-2.0
// Scalars of a run file to numbers, truth values and strings.
#include "trainer/options_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "kernels/error.h"

namespace bdlm {
namespace {

bool quoted(const YAML::Node& node) { return node.Tag() != "?" && !node.Tag().empty(); }

bool digit(char c) { return c >= '0' && c <= '9'; }

/// Mantissa and binary suffix of "1_000", "64Ki", "-1e-4".
struct Spelling {
  std::string digits;  // without underscores and suffix
  std::int64_t unit = 1;
};

std::optional<Spelling> spelling(std::string text) {
  Spelling out;
  const std::string_view letters = "KMGT";
  if (text.size() > 2 && text.back() == 'i') {
    const std::size_t power = letters.find(text[text.size() - 2]);
    if (power == std::string_view::npos) return std::nullopt;
    out.unit = std::int64_t{1} << (10 * (power + 1));
    text.resize(text.size() - 2);
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out.digits += text[i];
    } else if (i == 0 || i + 1 == text.size() || !digit(text[i - 1]) || !digit(text[i + 1])) {
      return std::nullopt;
    }
  }
  if (!out.digits.empty() && out.digits[0] == '+') out.digits.erase(0, 1);
  return out;
}

template <class T>
std::optional<T> parse_all(const std::string& text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || stop != end) return std::nullopt;
  return value;
}

std::optional<double> parse_number(const std::string& text) {
  const auto parts = spelling(text);
  if (!parts) return std::nullopt;
  const auto value = parse_all<double>(parts->digits);
  if (!value || !std::isfinite(*value)) return std::nullopt;
  return *value * static_cast<double>(parts->unit);
}

std::optional<bool> parse_boolean(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  if (text == "true" || text == "yes" || text == "on") return true;
  if (text == "false" || text == "no" || text == "off") return false;
  return std::nullopt;
}

/// The scalar's text, or an Error that says what was expected.
std::string plain(const YAML::Node& node, const char* expected) {
  if (node.IsScalar() && quoted(node)) {
    fail("must be {}, but {} is quoted, which makes it a string", expected, name_value(node));
  }
  if (!node.IsScalar()) fail("must be {}, not {}", expected, name_value(node));
  return node.Scalar();
}

std::string expand_environment(const std::string& text) {
  std::string out;
  for (std::size_t at = 0;;) {
    const std::size_t open = text.find("${", at);
    out += text.substr(at, open - at);
    if (open == std::string::npos) return out;
    const std::size_t close = text.find('}', open);
    require(close != std::string::npos, "'{}' has a ${{ without its }}", text);
    const std::string name = text.substr(open + 2, close - open - 2);
    const char* value = std::getenv(name.c_str());
    require(value != nullptr, "environment variable {} is not set: export it or write the value",
            name);
    out += value;
    at = close + 1;
  }
}

}  // namespace

std::int64_t to_integer(const YAML::Node& node) {
  const std::string text = plain(node, "a whole number");
  if (const auto parts = spelling(text)) {
    if (const auto value = parse_all<std::int64_t>(parts->digits)) {
      std::int64_t product = 0;
      require(!__builtin_mul_overflow(*value, parts->unit, &product), "{} is too large", text);
      return product;
    }
  }
  const auto value = parse_number(text);
  require(value.has_value(), "must be a whole number, not {}", name_value(node));
  constexpr double exact = 9007199254740992.0;  // 2^53: above it a double skips whole numbers
  require(std::abs(*value) <= exact, "{} is too large", text);
  require(*value == std::floor(*value), "must be a whole number, not {}", text);
  return static_cast<std::int64_t>(*value);
}

double to_number(const YAML::Node& node) {
  const auto value = parse_number(plain(node, "a number"));
  require(value.has_value(), "must be a number, not {}", name_value(node));
  return *value;
}

bool to_boolean(const YAML::Node& node) {
  const auto value = parse_boolean(plain(node, "true or false"));
  require(value.has_value(), "must be true or false, not {}", name_value(node));
  return *value;
}

std::string to_text(const YAML::Node& node) {
  require(node.IsScalar(), "must be a string, not {}", name_value(node));
  require(quoted(node) || !parse_boolean(node.Scalar()),
          "must be a string: put {} in quotes if it is meant as one", node.Scalar());
  return expand_environment(node.Scalar());
}

std::string to_path(const YAML::Node& node, const std::filesystem::path& base) {
  const std::string text = to_text(node);
  if (text.empty()) return text;
  return std::filesystem::absolute(base / text).lexically_normal().string();
}

std::string name_value(const YAML::Node& node) {
  if (node.IsScalar()) return fmt::format("'{}'", node.Scalar());
  if (node.IsSequence()) return "a list";
  return node.IsMap() ? "a mapping" : "nothing";
}

std::string number_text(double value) { return fmt::format("{}", value); }

std::string quote(const std::string& text) {
  const auto harmless = [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '/' || c == '.' || c == '-';
  };
  const bool plain_safe = !text.empty() && std::ranges::all_of(text, harmless) && text[0] != '-' &&
                          !parse_number(text) && !parse_boolean(text) && text != "null";
  if (plain_safe) return text;
  YAML::Emitter out;
  out << YAML::DoubleQuoted << text;
  return out.c_str();
}

std::string Range::text() const {
  const bool below = std::isfinite(low), above = std::isfinite(high);
  const std::string first = number_text(low), last = number_text(high);
  if (below && above) {
    return fmt::format("{}{} to {}{}", open_low ? "above " : "", first, open_high ? "below " : "",
                       last);
  }
  if (below) return (open_low ? "above " : "at least ") + first;
  return above ? (open_high ? "below " : "at most ") + last : "";
}

int edit_distance(const std::string& a, const std::string& b) {
  std::vector<int> before, last(b.size() + 1), now(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({now[j - 1] + 1, last[j] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    before = std::exchange(last, now);
  }
  return last[b.size()];
}

std::string nearest(const std::string& word, const std::vector<std::string>& words) {
  std::string best;
  int smallest = std::max<int>(2, static_cast<int>(word.size()) / 3) + 1;
  for (const std::string& other : words) {
    const int distance = edit_distance(word, other);
    if (distance < smallest && distance < static_cast<int>(other.size())) {
      smallest = distance;
      best = other;
    }
  }
  return best;
}

}  // namespace bdlm
