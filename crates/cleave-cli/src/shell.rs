//! `cleave completions` and `cleave man`: shell completions and manual pages, generated from the definitions in `args.rs`.

use std::fs;
use std::io::Write;
use std::path::Path;

use clap::CommandFactory;

use crate::args::{Args, Completions, Man};
use crate::failure::{Failure, Result};

/// `cleave completions`.
pub fn completions(args: &Completions, out: &mut dyn Write) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "cleave", &mut text);
    Ok(out.write_all(&text)?)
}

/// `cleave man`: prints the program's manual page, or writes the pages of all commands to a directory.
pub fn man(args: &Man, out: &mut dyn Write) -> Result<()> {
    let command = Args::command();
    let Some(dir) = &args.dir else {
        return Ok(clap_mangen::Man::new(command).render(out)?);
    };
    fs::create_dir_all(dir).map_err(|error| Failure::file(dir, "create", &error))?;
    write_page(dir, "cleave", command.clone())?;
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let name = format!("cleave-{}", sub.get_name());
        write_page(dir, &name, sub.clone().name(name.clone()))?;
    }
    Ok(())
}

fn write_page(dir: &Path, name: &str, command: clap::Command) -> Result<()> {
    let path = dir.join(format!("{name}.1"));
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    fs::write(&path, page).map_err(|error| Failure::file(&path, "write", &error))
}
