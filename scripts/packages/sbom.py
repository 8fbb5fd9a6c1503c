#!/usr/bin/env python3
"""Prints the list of what ingot's packages contain, in SPDX 2.3: scripts/packages/sbom.py VERSION.

The libraries are those of this machine's Debian packages, with their versions. SOURCE_DATE_EPOCH is the time.
"""

import datetime
import hashlib
import json
import os
import subprocess
import sys

# Debian package: (name, licence, how it is used).
LINKED = {
    "libfmt-dev": ("fmt", "MIT", "STATIC_LINK"),
    "nlohmann-json3-dev": ("nlohmann-json", "MIT", "STATIC_LINK"),
    "libcli11-dev": ("CLI11", "BSD-3-Clause", "STATIC_LINK"),
    "libpcre2-dev": ("PCRE2", "BSD-3-Clause", "STATIC_LINK"),
    "libutf8proc-dev": ("utf8proc", "MIT", "STATIC_LINK"),
    "libedit-dev": ("libedit", "BSD-3-Clause", "STATIC_LINK"),
    "libbsd-dev": ("libbsd", "BSD-3-Clause", "STATIC_LINK"),
    "libmd-dev": ("libmd", "BSD-3-Clause", "STATIC_LINK"),
    "libncurses-dev": ("ncurses", "X11", "STATIC_LINK"),
    "libboost1.81-dev": ("Boost", "BSL-1.0", "STATIC_LINK"),
    "libjpeg-dev": ("libjpeg-turbo", "IJG AND BSD-3-Clause AND Zlib", "STATIC_LINK"),
    "libpng-dev": ("libpng", "libpng-2.0", "STATIC_LINK"),
    "zlib1g-dev": ("zlib", "Zlib", "STATIC_LINK"),
    "libwebp-dev": ("libwebp", "BSD-3-Clause", "STATIC_LINK"),
    "libgif-dev": ("giflib", "MIT", "STATIC_LINK"),
    "libssl-dev": ("OpenSSL", "Apache-2.0", "DYNAMIC_LINK"),
    "libcurl4-openssl-dev": ("libcurl", "curl", "OPTIONAL_DEPENDENCY_OF"),
    "libsndfile1-dev": ("libsndfile", "LGPL-2.1-or-later", "OPTIONAL_DEPENDENCY_OF"),
    "libsamplerate0-dev": ("libsamplerate", "BSD-2-Clause", "OPTIONAL_DEPENDENCY_OF"),
}


def installed_version(package):
    done = subprocess.run(["dpkg-query", "-W", "-f=${Version}", package], capture_output=True, text=True, check=True)
    return done.stdout


def document(version, time, version_of=installed_version):
    packages = [
        {
            "SPDXID": "SPDXRef-ingot",
            "name": "ingot",
            "versionInfo": version,
            "licenseDeclared": "Apache-2.0",
            "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False,
        }
    ]
    relations = [
        {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-ingot"}
    ]
    for package, (name, licence, how) in LINKED.items():
        found = version_of(package)
        packages.append(
            {
                "SPDXID": f"SPDXRef-{name}",
                "name": name,
                "versionInfo": found,
                "licenseDeclared": licence,
                "downloadLocation": "NOASSERTION",
                "filesAnalyzed": False,
                "externalRefs": [
                    {
                        "referenceCategory": "PACKAGE-MANAGER",
                        "referenceType": "purl",
                        "referenceLocator": f"pkg:deb/debian/{package}@{found}",
                    }
                ],
            }
        )
        ends = ("SPDXRef-ingot", f"SPDXRef-{name}") if how.endswith("LINK") else (f"SPDXRef-{name}", "SPDXRef-ingot")
        relations.append({"spdxElementId": ends[0], "relationshipType": how, "relatedSpdxElement": ends[1]})
    content = json.dumps([packages, relations], sort_keys=True).encode()
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"ingot-{version}",
        "documentNamespace": f"urn:ingot:{version}:{hashlib.sha256(content).hexdigest()}",
        "creationInfo": {
            "created": datetime.datetime.fromtimestamp(time, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": ["Organization: The ingot authors"],
        },
        "packages": packages,
        "relationships": relations,
    }


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(json.dumps(document(sys.argv[1], int(os.environ["SOURCE_DATE_EPOCH"])), indent=2))
