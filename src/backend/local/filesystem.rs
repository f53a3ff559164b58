//! Which file systems a store may live on.
//!
//! A lock that the kernel keeps is worth something only if every process that could write the store asks the same
//! kernel. On a network file system, and on any that a program in user space serves, locks are what the other side
//! makes of them, or are silently kept on this machine alone. So those are refused by name, and what is not known
//! is refused too, unless somebody who knows it names the type.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use crate::error::{Error, Failure, Result};
use crate::store_url::StoreName;

/// Served by another machine, by a virtual machine's host or by a program in user space. A name that ends in a
/// dot stands for all that begin so.
const NETWORK: [&str; 26] = [
    "nfs",
    "nfs4",
    "smb",
    "smb2",
    "smb3",
    "smbfs",
    "cifs",
    "9p",
    "fuse",
    "fuse.",
    "fuseblk",
    "fusectl",
    "virtiofs",
    "ceph",
    "afs",
    "lustre",
    "glusterfs",
    "gpfs",
    "beegfs",
    "ocfs2",
    "gfs2",
    "vboxsf",
    "drvfs",
    "webdav",
    "afpfs",
    "prl_fs",
];

/// What keeps flock(2) in the kernel of this machine. What is missing here can be allowed by name.
const LOCAL: [&str; 22] = [
    "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "bcachefs", "f2fs", "jfs", "nilfs2", "reiserfs", "tmpfs", "ramfs",
    "overlay", "vfat", "exfat", "ntfs3", "hfsplus", "udf", "squashfs", "erofs", "iso9660",
];

/// The numbers of statfs(2) for network file systems, in case the list of mounts names another type.
const NETWORK_MAGIC: [(i64, &str); 12] = [
    (0x6969, "nfs"),
    (0x517b, "smb"),
    (0xfe53_4d42, "smb2"),
    (0xff53_4d42, "cifs"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "fuse"),
    (0x00c3_6400, "ceph"),
    (0x5346_414f, "afs"),
    (0x0bd0_0bd0, "lustre"),
    (0x7461_636f, "ocfs2"),
    (0x0116_1970, "gfs2"),
    (0x786f_4256, "vboxsf"),
];

/// How long a file system may take to say what it is. A mount whose server is gone never does.
const PATIENCE: Duration = Duration::from_secs(5);

/// Whether a file system of this type is one that a store may not live on: a network file system, or any that a
/// program in user space serves.
///
/// ```
/// assert!(lockhouse::owner::network_filesystem("nfs4"));
/// assert!(lockhouse::owner::network_filesystem("fuse.sshfs"));
/// assert!(!lockhouse::owner::network_filesystem("ext4"));
/// ```
pub fn network_filesystem(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    NETWORK.iter().any(|network| match network.strip_suffix('.') {
        Some(_) => name.starts_with(network),
        None => name == *network,
    })
}

/// Refuses a directory on a network file system, or on one whose locks nobody here knows.
///
/// # Errors
///
/// `Denied` naming mount point and type; `Denied` as well if the file system does not answer within five seconds;
/// `Invalid` if there is no such directory.
pub fn refuse_network_filesystem(dir: &Path) -> Result<()> {
    judge(dir, &[], &StoreName::path(dir)).map(drop)
}

/// What a store lives on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileSystem {
    pub(crate) kind: String,
    pub(crate) mount_point: PathBuf,
    /// What somebody who looks at the store should know: that the type was allowed by name, or that the upper
    /// layer of an overlay could not be judged.
    pub(crate) remark: Option<String>,
}

/// Judges what a directory lives on.
pub(crate) fn judge(directory: &Path, allowed: &[String], store: &StoreName) -> Result<FileSystem> {
    let (sender, receiver) = mpsc::channel();
    let at = directory.to_owned();
    // In a thread of its own, which a dead mount keeps for ever.
    let asked = std::thread::Builder::new().name("lockhouse-statfs".to_owned()).spawn(move || {
        // Nobody may wait any more.
        let _ = sender.send(find(&at));
    });
    asked.map_err(|error| Error::internal(format!("a thread cannot be started: {error}")))?;
    let refuse =
        |message: String| Err(Error::Denied(Box::new(Failure { store: Some(store.clone()), message, source: None })));
    let mount = match receiver.recv_timeout(PATIENCE) {
        Ok(Ok(mount)) => mount,
        Ok(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
            return refuse(format!("{} cannot be opened: {error}", directory.display()));
        }
        Ok(Err(error)) => {
            return Err(Error::invalid_at(store, format!("{} cannot be opened: {error}", directory.display())));
        }
        Err(_) => {
            return refuse(format!(
                "the file system of {} did not answer within {}; is its server up?",
                directory.display(),
                crate::describe::duration(PATIENCE)
            ));
        }
    };
    weigh(&mount, allowed).or_else(refuse)
}

/// Decides about a mount.
fn weigh(mount: &Mount, allowed: &[String]) -> Result<FileSystem, String> {
    let (kind, point) = (&mount.kind, mount.point.display());
    let found = |remark| Ok(FileSystem { kind: kind.clone(), mount_point: mount.point.clone(), remark });
    if network_filesystem(kind) {
        return Err(format!(
            "{point} is a file system of type {kind}, whose locks another machine or program would have to keep; use a local disk, or a MongoDB store"
        ));
    }
    if kind == "overlay" {
        return match mount.upper() {
            None => found(Some("overlay, upper unknown".to_owned())),
            Some(upper) => match find(&upper) {
                Err(_) => found(Some("overlay, upper unknown".to_owned())),
                Ok(below) if network_filesystem(&below.kind) => Err(format!(
                    "{point} is an overlay whose upper layer {} is a file system of type {}; use a local disk",
                    upper.display(),
                    below.kind
                )),
                Ok(_) => found(None),
            },
        };
    }
    if LOCAL.contains(&kind.as_str()) {
        return found(None);
    }
    if allowed.iter().any(|allowed| allowed == kind) {
        return found(Some(format!("the type {kind} was allowed by name")));
    }
    Err(format!(
        "{point} is a file system of the unknown type {kind}; if you know that its flock(2) holds between all processes that use the store, give --allow-filesystem {kind}"
    ))
}

/// One line of the list of mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    id: u64,
    pub(crate) point: PathBuf,
    kind: String,
    options: Vec<u8>,
}

impl Mount {
    pub(crate) fn kind(&self) -> &str {
        &self.kind
    }

    /// The upper layer of an overlay.
    fn upper(&self) -> Option<PathBuf> {
        let mut options = self.options.split(|byte| *byte == b',');
        let upper = options.find_map(|option| option.strip_prefix(b"upperdir=".as_slice()))?;
        Some(PathBuf::from(OsString::from_vec(upper.to_owned())))
    }
}

/// The mount that a directory is on: not by its path, which another mount may hide, but by an open descriptor.
fn find(directory: &Path) -> io::Result<Mount> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(directory, flags, Mode::empty())?;
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", opened.as_raw_fd()))?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse::<u64>().ok());
    let mounts = mounts()?;
    let mount = mounts.into_iter().find(|mount| Some(mount.id) == id);
    let mut mount = mount.ok_or_else(|| io::Error::other("its mount is not in the list of mounts"))?;
    let magic = rustix::fs::fstatfs(&opened)?.f_type;
    if let Some((_, kind)) = NETWORK_MAGIC.iter().find(|(network, _)| *network == magic & 0xffff_ffff)
        && !network_filesystem(&mount.kind)
    {
        mount.kind = (*kind).to_owned();
    }
    Ok(mount)
}

/// All mounts that this process sees.
pub(crate) fn mounts() -> io::Result<Vec<Mount>> {
    Ok(parse(&std::fs::read("/proc/self/mountinfo")?))
}

fn parse(mountinfo: &[u8]) -> Vec<Mount> {
    mountinfo.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

/// proc_pid_mountinfo(5): `36 35 98:0 /root /point rw,noatime master:1 - ext3 /dev/root rw,errors=continue`.
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let point = PathBuf::from(OsString::from_vec(unescape(fields.nth(3)?)));
    // Optional fields end with a dash of its own.
    fields.by_ref().find(|field| *field == b"-")?;
    let kind = String::from_utf8_lossy(&unescape(fields.next()?)).into_owned();
    let options = unescape(fields.nth(1).unwrap_or_default());
    Some(Mount { id, point, kind, options })
}

/// A space, a tab, a line end and a backslash are written as `\` and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|digits| byte == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        match octal {
            Some(digits) => {
                bytes.push(digits.iter().fold(0_u8, |value, digit| value.wrapping_mul(8).wrapping_add(digit - b'0')));
                rest = &tail[3..];
            }
            None => {
                bytes.push(byte);
                rest = tail;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    fn mount(kind: &str, options: &str) -> Mount {
        let line = format!("36 35 98:0 /root /a\\040b rw,noatime master:1 shared:2 - {kind} /dev/x {options}");
        parse_line(line.as_bytes()).unwrap()
    }

    #[test]
    fn mounts_are_read() {
        let mount = mount("overlay", "rw,lowerdir=/l,upperdir=/u\\134v,workdir=/w");
        assert_eq!((mount.id, mount.kind.as_str()), (36, "overlay"));
        assert_eq!(mount.point.as_os_str().as_bytes(), b"/a b");
        assert_eq!(mount.upper().unwrap().as_os_str().as_bytes(), b"/u\\v");
        assert!(parse(b"garbage\n\n1 2 3\n").is_empty());
        assert!(mounts().unwrap().iter().any(|mount| mount.point == Path::new("/")));
    }

    #[test]
    fn what_others_serve_is_refused_and_what_the_kernel_keeps_is_not() {
        for kind in [
            "nfs",
            "nfs4",
            "smb",
            "smb2",
            "smb3",
            "smbfs",
            "cifs",
            "9p",
            "fuse",
            "fuse.sshfs",
            "fuse.virtiofs",
            "fuse.rclone",
            "fuseblk",
            "virtiofs",
            "ceph",
            "fuse.ceph",
            "afs",
            "lustre",
            "glusterfs",
            "fuse.glusterfs",
            "gpfs",
            "beegfs",
            "ocfs2",
            "vboxsf",
            "drvfs",
            "webdav",
            "afpfs",
            "NFS",
        ] {
            assert!(network_filesystem(kind), "{kind}");
            let refusal = weigh(&mount(kind, "rw"), &[kind.to_owned()]).unwrap_err();
            assert!(refusal.contains(&format!("type {kind}")) && refusal.contains("/a b"), "{refusal}");
        }
        for kind in ["ext4", "xfs", "btrfs", "zfs", "tmpfs"] {
            assert_eq!(weigh(&mount(kind, "rw"), &[]).unwrap().remark, None, "{kind}");
        }
    }

    #[test]
    fn an_unknown_type_has_to_be_allowed_by_name() {
        let unknown = mount("homebrewfs", "rw");
        let refusal = weigh(&unknown, &[]).unwrap_err();
        assert!(refusal.contains("--allow-filesystem homebrewfs"), "{refusal}");
        let allowed = weigh(&unknown, &["homebrewfs".to_owned()]).unwrap();
        assert!(allowed.remark.unwrap().contains("homebrewfs"));
    }

    #[test]
    fn an_overlay_is_judged_by_its_upper_layer() {
        let here = mount("overlay", "rw,upperdir=/proc");
        assert_eq!(weigh(&here, &[]).unwrap().remark, None);
        let elsewhere = mount("overlay", "rw,upperdir=/no/such/directory");
        assert_eq!(weigh(&elsewhere, &[]).unwrap().remark.as_deref(), Some("overlay, upper unknown"));
        let only_reading = mount("overlay", "ro,lowerdir=/a:/b");
        assert_eq!(weigh(&only_reading, &[]).unwrap().remark.as_deref(), Some("overlay, upper unknown"));
    }

    #[test]
    fn a_directory_is_found_by_what_it_is_on() {
        assert_eq!(find(Path::new("/proc")).unwrap().kind, "proc");
        let refusal = refuse_network_filesystem(Path::new("/proc")).unwrap_err().to_string();
        assert!(refusal.contains("unknown type proc"), "{refusal}");
        assert!(find(Path::new("/no/such/directory")).is_err());
    }
}
