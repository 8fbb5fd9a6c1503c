// The formats of JSON Schema (2020-12, section 7.3) as regular expressions, as strict as the RFCs that define them.
#include <algorithm>
#include <array>

#include "text/grammar/schema/schema.h"

namespace ingot {

namespace {

#define DATE_RULE                                                                                                     \
  "(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[" \
  "0-8]))|(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
#define TIME_RULE                                                                                \
  "(?:(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d+)?(?:[Zz]|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)|" \
  "23:59:60(?:\\.\\d+)?(?:[Zz]|[+-]00:00))"
// With leap seconds in every time zone.
#define WIDE_TIME_RULE "(?:[01]\\d|2[0-3]):[0-5]\\d:(?:[0-5]\\d|60)(?:\\.\\d+)?(?:[Zz]|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define BYTE_RULE "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4_RULE "(?:" BYTE_RULE "(?:\\." BYTE_RULE "){3})"
#define H16 "[0-9A-Fa-f]{1,4}"
#define LS32 "(?:" H16 ":" H16 "|" IPV4_RULE ")"
#define IPV6_RULE                                                                                                  \
  "(?:(?:" H16 ":){6}" LS32 "|::(?:" H16 ":){5}" LS32 "|(?:" H16 ")?::(?:" H16 ":){4}" LS32 "|(?:(?:" H16          \
  ":){0,1}" H16 ")?::(?:" H16 ":){3}" LS32 "|(?:(?:" H16 ":){0,2}" H16 ")?::(?:" H16 ":){2}" LS32 "|(?:(?:" H16    \
  ":){0,3}" H16 ")?::" H16 ":" LS32 "|(?:(?:" H16 ":){0,4}" H16 ")?::" LS32 "|(?:(?:" H16 ":){0,5}" H16 ")?::" H16 \
  "|(?:(?:" H16 ":){0,6}" H16 ")?::)"
// Excludes labels with "--" in places three and four: A-labels (xn--...) and reserved labels.
#define LABEL_RULE                                   \
  "[A-Za-z0-9](?:(?:[A-Za-z0-9-]{0,2}[A-Za-z0-9])?|" \
  "[A-Za-z0-9-](?:[A-Za-z0-9][A-Za-z0-9-]|-[A-Za-z0-9])[A-Za-z0-9-]{0,58}[A-Za-z0-9])"
#define HOST_RULE LABEL_RULE "(?:\\." LABEL_RULE ")*"
#define WIDE_LABEL_RULE "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define WIDE_HOST_RULE WIDE_LABEL_RULE "(?:\\." WIDE_LABEL_RULE ")*"
#define ATOM_RULE "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define EMAIL(HOST)                                                                                       \
  "(?:" ATOM_RULE "(?:\\." ATOM_RULE ")*|\"(?:[ !#-\\[\\]-~]|\\\\[ -~])*\")@(?:" HOST "|\\[(?:" IPV4_RULE \
  "|IPv6:" IPV6_RULE ")\\])"
// RFC 3986, appendix A. With letters beyond ASCII (MORE): RFC 3987.
#define NO_MORE ""
#define LETTERS "\\u00a0-\\ud7ff\\uf900-\\ufdcf\\ufdf0-\\uffef\\u{10000}-\\u{1fffd}\\u{20000}-\\u{efffd}"
#define PRIVATE "\\ue000-\\uf8ff\\u{f0000}-\\u{ffffd}\\u{100000}-\\u{10fffd}"
#define CHARS(MORE) "(?:[A-Za-z0-9._~!$&'()*+,;=" MORE "-]|%[0-9A-Fa-f]{2})"
#define PCHAR(MORE) CHARS(":@" MORE)
#define IP_LITERAL "\\[(?:" IPV6_RULE "|[vV][0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\\]"
#define AUTHORITY(MORE) "(?:" CHARS(":" MORE) "*@)?(?:" IP_LITERAL "|" CHARS(MORE) "*)(?::\\d*)?"
#define STEPS(MORE) "(?:/" PCHAR(MORE) "*)*"
#define PATHS(FIRST, MORE) \
  "(?://" AUTHORITY(MORE) STEPS(MORE) "|/(?:" PCHAR(MORE) "+" STEPS(MORE) ")?|" FIRST "+" STEPS(MORE) "|)"
#define TAIL(MORE, QUERY) "(?:\\?" CHARS(":@/?" MORE QUERY) "*)?(?:#" CHARS(":@/?" MORE) "*)?"
#define ABSOLUTE(MORE, QUERY) "[A-Za-z][A-Za-z0-9+.-]*:" PATHS(PCHAR(MORE), MORE) TAIL(MORE, QUERY)
#define RELATIVE(MORE, QUERY) PATHS(CHARS("@" MORE), MORE) TAIL(MORE, QUERY)
#define REFERENCE(MORE, QUERY) "(?:" ABSOLUTE(MORE, QUERY) "|" RELATIVE(MORE, QUERY) ")"
#define POINTER_RULE "(?:/(?:[^~/]|~[01])*)*"

constexpr std::array<StringFormat, 19> kFormats = {{
    {"date-time", DATE_RULE "[Tt]" TIME_RULE, DATE_RULE "[Tt]" WIDE_TIME_RULE},
    {"date", DATE_RULE},
    {"time", TIME_RULE, WIDE_TIME_RULE},
    {"duration",
     "P(?:\\d+W|(?:\\d+Y(?:\\d+M(?:\\d+D)?)?|\\d+M(?:\\d+D)?|\\d+D)"
     "(?:T(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S))?|"
     "T(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S))"},
    {"email", EMAIL(HOST_RULE), EMAIL(WIDE_HOST_RULE)},
    {"idn-email", "[^@\\s]+@[^@\\s]+"},
    {"hostname", "(?=.{1,253}$)" HOST_RULE, WIDE_HOST_RULE},
    {"idn-hostname", ""},
    {"ipv4", IPV4_RULE},
    {"ipv6", IPV6_RULE},
    {"uri", ABSOLUTE(NO_MORE, NO_MORE)},
    {"uri-reference", REFERENCE(NO_MORE, NO_MORE)},
    {"iri", ABSOLUTE(LETTERS, PRIVATE)},
    {"iri-reference", REFERENCE(LETTERS, PRIVATE)},
    {"uuid", "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"},
    {"uri-template",
     "(?:[^\\u0000-\\u0020\\u007f-\\u009f\"%<>\\\\^`{|}]|%[0-9A-Fa-f]{2}|"
     "\\{[+#./;?&=,!@|]?(?:[A-Za-z0-9_%]+\\.)*[A-Za-z0-9_%]+(?::[1-9]\\d{0,3}|\\*)?"
     "(?:,(?:[A-Za-z0-9_%]+\\.)*[A-Za-z0-9_%]+(?::[1-9]\\d{0,3}|\\*)?)*\\})*"},
    {"json-pointer", POINTER_RULE},
    {"relative-json-pointer", "(?:0|[1-9]\\d*)(?:#|" POINTER_RULE ")"},
    {"regex", ""},  // refused: no regular expression can check a regular expression
}};

}  // namespace

const StringFormat* find_string_format(std::string_view name) {
  const auto* found = std::ranges::find(kFormats, name, &StringFormat::name);
  return found == kFormats.end() ? nullptr : found;
}

}  // namespace ingot
