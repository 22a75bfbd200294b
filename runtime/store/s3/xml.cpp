// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/s3/xml.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>

namespace lockstep::s3 {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";
constexpr int kMostDepth = 32;

struct Damaged {};

[[noreturn]] void refuse() { throw Damaged{}; }

void append_utf8(std::string& text, std::uint32_t code) {
  const auto add = [&](std::uint32_t byte) { text += static_cast<char>(byte); };
  if (code == 0 || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) refuse();
  if (code < 0x80) {
    add(code);
  } else if (code < 0x800) {
    add(0xC0U | (code >> 6U));
    add(0x80U | (code & 0x3FU));
  } else if (code < 0x10000) {
    add(0xE0U | (code >> 12U));
    add(0x80U | ((code >> 6U) & 0x3FU));
    add(0x80U | (code & 0x3FU));
  } else {
    add(0xF0U | (code >> 18U));
    add(0x80U | ((code >> 12U) & 0x3FU));
    add(0x80U | ((code >> 6U) & 0x3FU));
    add(0x80U | (code & 0x3FU));
  }
}

void append_entity(std::string& text, std::string_view name) {
  constexpr std::pair<std::string_view, char> named[] = {
      {"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}};
  for (const auto& [known, c] : named) {
    if (name != known) continue;
    text += c;
    return;
  }
  if (!name.starts_with('#')) refuse();
  name.remove_prefix(1);
  const int base = name.starts_with('x') ? 16 : 10;
  if (base == 16) name.remove_prefix(1);
  std::uint32_t code = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data(), end, code, base);
  if (error != std::errc{} || stop != end) refuse();
  append_utf8(text, code);
}

class Parser {
 public:
  explicit Parser(std::string_view document) : rest_(document) {}

  XmlElement document() {
    skip_blanks_and_comments();
    if (rest_.starts_with("<?xml")) take_until("?>");
    skip_blanks_and_comments();
    XmlElement root = element(1);
    skip_blanks_and_comments();
    if (!rest_.empty()) refuse();
    return root;
  }

 private:
  bool accept(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }

  std::string_view take_until(std::string_view end) {
    const std::size_t at = rest_.find(end);
    if (at == std::string_view::npos) refuse();
    const std::string_view taken = rest_.substr(0, at);
    rest_.remove_prefix(at + end.size());
    return taken;
  }

  void skip_blanks() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(kBlanks), rest_.size()));
  }

  void skip_blanks_and_comments() {
    skip_blanks();
    while (accept("<!--")) {
      take_until("-->");
      skip_blanks();
    }
  }

  std::string name() {
    const std::size_t end = rest_.find_first_of(" \t\r\n<>/=\"'&!?");
    if (end == 0 || end == std::string_view::npos) refuse();
    const std::string_view whole = rest_.substr(0, end);
    rest_.remove_prefix(end);
    return std::string(whole);
  }

  static std::string local(const std::string& whole) {
    return whole.substr(whole.find(':') + 1);  // npos + 1 is 0
  }

  void skip_attributes() {
    for (skip_blanks(); !rest_.starts_with('>') && !rest_.starts_with('/'); skip_blanks()) {
      name();
      skip_blanks();
      if (!accept("=")) refuse();
      skip_blanks();
      if (accept("\"")) {
        take_until("\"");
      } else if (accept("'")) {
        take_until("'");
      } else {
        refuse();
      }
    }
  }

  XmlElement element(int depth) {
    if (depth > kMostDepth || !accept("<")) refuse();
    const std::string whole = name();
    XmlElement made;
    made.name = local(whole);
    skip_attributes();
    if (accept("/>")) return made;
    if (!accept(">")) refuse();
    while (!accept("</")) content(made, depth);
    if (name() != whole) refuse();
    skip_blanks();
    if (!accept(">")) refuse();
    return made;
  }

  void content(XmlElement& into, int depth) {
    if (rest_.empty()) refuse();
    if (accept("<!--")) {
      take_until("-->");
    } else if (accept("<![CDATA[")) {
      into.text += take_until("]]>");
    } else if (accept("&")) {
      append_entity(into.text, take_until(";"));
    } else if (rest_.starts_with('<')) {
      into.children.push_back(element(depth + 1));
    } else {
      const std::size_t end = std::min(rest_.find_first_of("<&"), rest_.size());
      into.text += rest_.substr(0, end);
      rest_.remove_prefix(end);
    }
  }

  std::string_view rest_;
};

}  // namespace

const XmlElement* XmlElement::find(std::string_view child) const {
  const auto at = std::find_if(children.begin(), children.end(),
                               [&](const XmlElement& each) { return each.name == child; });
  return at == children.end() ? nullptr : &*at;
}

std::string XmlElement::text_of(std::string_view child) const {
  const XmlElement* found = find(child);
  return found == nullptr ? std::string() : found->text;
}

std::optional<XmlElement> parse_xml(std::string_view document) {
  try {
    return Parser(document).document();
  } catch (const Damaged&) {
    return std::nullopt;
  }
}

}  // namespace lockstep::s3
