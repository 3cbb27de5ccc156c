#!/usr/bin/env bash
# Builds the web client into internal/web/dist, as far as something has changed.
#
#   web/make.sh [--test]    --test also installs what the tests and checks need
#
# Without Node.js 20, or if npm cannot install the packages, the program is built without
# the page. Only in CI that is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."

without() {
  echo "the web client is not built: $1"
  [[ -z ${CI:-} ]] || exit 1
  exit 0
}

command -v node >/dev/null && command -v npm >/dev/null || without "it needs Node.js 20 or newer, with npm"
node -e 'process.exit(Number(process.versions.node.split(".")[0]) >= 20 ? 0 : 1)' || without "it needs Node.js 20 or newer, and this is $(node --version)"

install() { # install STAMP ARGUMENTS...
  local stamp=node_modules/.loquat-$1
  shift
  [[ -e $stamp && $stamp -nt package-lock.json ]] && return
  echo "installing the packages of the web client, which takes a minute or more"
  npm ci --no-audit --no-fund --loglevel=error "$@" || without "npm could not install its packages"
  touch "$stamp"
}

if [[ ${1:-} == --test ]]; then
  install all
  touch node_modules/.loquat-build
else
  install build --omit=dev -w web -w clients/typescript
fi

# The stamp says that a build has succeeded, and when that build began. An interrupted build leaves none.
stamp=node_modules/.loquat-page
newer=$(find web clients/typescript/src package-lock.json tsconfig.base.json -newer "$stamp" -type f ! -path '*/node_modules/*' ! -path 'web/test/*' ! -name schema.ts -print -quit 2>/dev/null || echo changed)
if [[ -n $newer || ! -e internal/web/dist/index.html || ! -e node_modules/.loquat-packages.json ]]; then
  rm -f "$stamp"
  touch "$stamp.new"
  node web/build.mjs
  mv "$stamp.new" "$stamp"
fi
