// The JSON of a model file's header, read from untrusted text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace anydepth {

class Json {
 public:
  static Json parse(std::string_view text);

  // Each throws an Error where the value is of another type.
  bool boolean() const;
  double number() const;
  int64_t integer(int64_t least, int64_t most) const;
  const std::string& text() const;
  const std::vector<Json>& items() const;
  const std::vector<std::pair<std::string, Json>>& members() const;

  bool is_null() const { return type_ == Type::null; }
  const Json& at(std::string_view key) const;
  const Json* find(std::string_view key) const;  // null if it is not there, or null

 private:
  enum class Type { null, boolean, number, string, array, object };
  friend class JsonParser;
  void require(Type type) const;

  Type type_ = Type::null;
  double number_ = 0;
  std::string text_;
  std::vector<Json> items_;
  std::vector<std::pair<std::string, Json>> members_;
};

bool is_utf8(std::string_view text);

}  // namespace anydepth
