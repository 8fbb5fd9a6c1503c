// The pages of the server: the files of src/server/web, built into the program (cmake/web.cmake).
#pragma once
#include <string_view>

#include "server/requests/http.h"

namespace ingot {

struct WebAsset {
  std::string_view path;  // "/", "/status", "/page.css"
  std::string_view type;  // Content-Type
  std::string_view bytes;
};

const WebAsset* find_web_asset(std::string_view path);  // null: no such page

// The asset, or status 304 if the client already has it.
HttpResponse web_response(const WebAsset& asset, const HttpRequest& request);

}  // namespace ingot
