// The pages that the server brings along: the files of src/server/web, built into the program (cmake/web.cmake).
#pragma once
#include <string_view>

#include "server/http/http.h"

namespace ingot {

struct WebAsset {
  std::string_view path;  // "/", "/status", "/page.css"
  std::string_view type;  // Content-Type
  std::string_view bytes;
};

const WebAsset* find_web_asset(std::string_view path);  // null: there is none

// The asset, or 304 when the client has it already.
HttpResponse web_response(const WebAsset& asset, const HttpRequest& request);

}  // namespace ingot
