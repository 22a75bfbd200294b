// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::s3 {

/// An element of an answer: its text, its elements, no attributes.
struct XmlElement {
  std::string name;  // without the prefix of a namespace
  std::string text;  // of its own, entities resolved
  std::vector<XmlElement> children;

  /// The first child of that name; null if there is none.
  const XmlElement* find(std::string_view child) const;
  /// The text of that child; empty if there is none.
  std::string text_of(std::string_view child) const;
};

/// The root of a document; nothing if the document is cut off, damaged, nested deeper than any
/// answer of a store, or declares a document type. Blanks before and after it are allowed: a store
/// sends them while it works.
std::optional<XmlElement> parse_xml(std::string_view document);

}  // namespace lockstep::s3
