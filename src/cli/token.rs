//! `token`: a file for `--token-file`, for where there is no shell that could make one.
//!
//! The file is there with the whole token in it or not at all: it gets its name last. One that is there stays as it is,
//! so that any number of starts may ask for it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use lockhouse::describe::printable;
use lockhouse::service::Token;

use super::args::TokenArgs;
use super::exit::Failure;
use super::output;

/// Makes the file unless there is one, and says what is in it only if asked to.
pub(crate) fn token(args: &TokenArgs) -> Result<(), Failure> {
    make(&args.file).map_err(|error| {
        let name = args.file.display().to_string();
        let error = io::Error::new(error.kind(), format!("{}: {error}", printable(&name)));
        Failure::system("the token file cannot be made", error)
    })?;
    // Whoever starts a service with it later would be told the same then.
    Token::from_file(&args.file)?;
    if !args.show {
        return Ok(());
    }
    let text = std::fs::read_to_string(&args.file);
    let text = text.map_err(|error| Failure::system("the token file cannot be read", error))?;
    output::print(&format!("{}\n", text.trim_end()))
}

/// Random bytes of the operating system, in hexadecimal.
fn random<const N: usize>() -> io::Result<String> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn make(file: &Path) -> io::Result<()> {
    if file.try_exists()? {
        return Ok(());
    }
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{}", random::<8>()?));
    let unfinished = PathBuf::from(name);
    let made = write(&unfinished, file);
    // Its name is another one now, or it is in the way.
    let removed = std::fs::remove_file(&unfinished);
    match made {
        // Somebody was faster, with a token that is as good.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => removed,
        Err(error) => Err(error),
        Ok(()) => removed,
    }
}

fn write(unfinished: &Path, file: &Path) -> io::Result<()> {
    let mut to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(unfinished)?;
    to.write_all(format!("{}\n", random::<32>()?).as_bytes())?;
    to.sync_all()?;
    // Unlike a rename it replaces nothing.
    std::fs::hard_link(unfinished, file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_token_is_made_once_for_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        make(&file).unwrap();
        let first = std::fs::read_to_string(&file).unwrap();
        assert_eq!(first.trim_end().len(), 64);
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        make(&file).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), first);
        Token::from_file(&file).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing unfinished is left");
    }

    #[test]
    fn who_comes_second_leaves_the_first_ones_token() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        let many: Vec<_> = (0..8)
            .map(|_| {
                let file = file.clone();
                std::thread::spawn(move || {
                    make(&file).unwrap();
                    std::fs::read_to_string(file).unwrap()
                })
            })
            .collect();
        let mut seen: Vec<_> = many.into_iter().map(|thread| thread.join().unwrap()).collect();
        seen.dedup();
        assert_eq!(seen.len(), 1);
    }
}
