//! A database opened by relative paths in a process that changes its working directory. This is a test binary of its
//! own, because the working directory belongs to the whole process.

// Helpers may panic as well: a failed step fails the test.
#![allow(clippy::unwrap_used)]

use cleavedb::Options;

#[test]
fn a_database_opened_by_relative_paths_survives_a_change_of_the_working_directory() {
    let (here, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (path, fast, slow) in [("db", None, None), ("main", Some("./fast"), Some("deep/../slow"))] {
        std::env::set_current_dir(here.path()).unwrap();
        let mut options = Options::new().memory_budget(16 << 20);
        if let (Some(fast), Some(slow)) = (fast, slow) {
            std::fs::create_dir_all("deep").unwrap();
            options = options.fast_dir(fast).slow_dir(slow);
        }
        let db = options.clone().open(path).unwrap();
        db.put("before", "1").unwrap();
        db.flush().unwrap();
        std::env::set_current_dir(elsewhere.path()).unwrap();
        assert_eq!(db.get("before").unwrap().unwrap(), "1");
        // More than fits in one log.
        for number in 0..40_u32 {
            db.put(number.to_be_bytes(), vec![7; 1 << 20]).unwrap();
        }
        db.flush().unwrap();
        db.close().unwrap();
        assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0, "files were created in the new directory");
        std::env::set_current_dir(here.path()).unwrap();
        assert!(options.check_files(path).unwrap().is_sound());
        let db = options.open(path).unwrap();
        assert_eq!(db.iter().unwrap().count(), 41);
        db.close().unwrap();
    }
}
