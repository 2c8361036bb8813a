#!/bin/sh
# Prints the version of this tree: the last tag and, unless it is exactly that, the commit behind it. It begins with a
# digit and grows from commit to commit, as packages need; a tree without tags or without git begins at 0.0.0.
set -eu
tag=$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null) || tag=v0.0.0
version=${tag#v}
if exact=$(git describe --tags --exact-match --dirty --match 'v[0-9]*' 2>/dev/null) && [ "$exact" = "$tag" ]; then
    echo "$version"
elif commit=$(TZ=UTC git log -1 --date=format-local:%Y%m%d.%H%M%S --format=%cd.%h 2>/dev/null); then
    git diff --quiet HEAD -- || commit=$commit.dirty
    echo "$version+git$commit"
else
    echo "$version+unknown"
fi
