//! The first half of the tour: import, get, scan, merge and snapshot on the included data set, each compared with an
//! ordered map of the same records.

use std::collections::BTreeMap;
use std::time::Instant;

use cleavedb::{Db, Iter, Keyspace, KeyspaceOptions, Slice, WriteBatch};
use indicatif::HumanCount;

use super::guide::{Guide, check, rate};
use crate::failure::{Failure, Result};
use crate::form::escaped;
use crate::transfer::batches::Batches;
use crate::transfer::jsonl;
use crate::{picture, progress};

/// The data set (data/README.md): country/name/id -> latitude;longitude;population;time zone.
const CITIES: &str = include_str!("../../../../data/cities.jsonl");

/// The expected records.
type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Runs the steps from import to snapshot.
pub fn show(db: &Db, guide: &mut Guide<'_>) -> Result<()> {
    let cities = db.keyspace("cities")?;
    let model = import(db, &cities, guide)?;
    read(&cities, &model, guide)?;
    scan(&cities, &model, guide)?;
    merge(db, &model, guide)?;
    snapshot(db, &cities, &model, guide)
}

fn import(db: &Db, cities: &Keyspace, guide: &mut Guide<'_>) -> Result<Model> {
    guide.step("Import the cities of the world (GeoNames, CC BY 4.0)")?;
    let mut records = Vec::new();
    for line in CITIES.lines() {
        records.push(jsonl::parse(line.as_bytes()).map_err(Failure::Message)?);
    }
    let bar = progress::records("importing", records.len() as u64);
    let start = Instant::now();
    let mut batches = Batches::new(db, cities);
    for (key, value) in &records {
        batches.put(key, value)?;
        bar.inc(1);
    }
    batches.write()?;
    bar.finish_and_clear();
    let model = Model::from_iter(records);
    guide.say(&rate(model.len() as u64, "cities", start.elapsed()))?;
    Ok(model)
}

fn read(cities: &Keyspace, model: &Model, guide: &mut Guide<'_>) -> Result<()> {
    guide.step("Read: point reads by key")?;
    for prefix in ["IS/Reykjav", "NZ/Wellington/", "KE/Nairobi/"] {
        let (key, _) = first(model, prefix)?;
        let value = cities.get(key)?;
        check(value.is_some(), || format!("{} is missing", escaped(key)))?;
        guide.say(&format!("{} -> {}", escaped(key), value.as_deref().map(escaped).unwrap_or_default()))?;
    }
    let start = Instant::now();
    for (key, value) in model {
        let found = cities.get(key)?;
        check(found.as_deref() == Some(&value[..]), || format!("{} has a different value than was put", escaped(key)))?;
    }
    check(cities.get("XX/Atlantis")?.is_none(), || "a city that was never put was found".to_owned())?;
    guide.say(&format!(
        "all cities: {}, each with the value that was put",
        rate(model.len() as u64, "gets", start.elapsed())
    ))
}

fn first<'a>(model: &'a Model, prefix: &str) -> Result<(&'a Vec<u8>, &'a Vec<u8>)> {
    let found = model.range(prefix.as_bytes().to_vec()..).next();
    found.ok_or_else(|| Failure::new(format!("the data set has no record at or after {prefix}")))
}

fn scan(cities: &Keyspace, model: &Model, guide: &mut Guide<'_>) -> Result<()> {
    guide.step("Scan: records in key order, in both directions")?;
    let iceland: Vec<String> = names(cities.prefix("IS/")?)?;
    let mut backward = Vec::new();
    for record in cities.prefix("IS/")?.rev() {
        backward.push(name(&record?.0));
    }
    guide.say(&format!("prefix IS/ forward: {}", iceland.join(", ")))?;
    guide.say(&format!("prefix IS/ reverse: {}", backward.join(", ")))?;
    backward.reverse();
    check(iceland == backward, || "forward and reverse scans of IS/ differ".to_owned())?;

    let start = Instant::now();
    compare(cities.iter()?, model.iter(), "forward")?;
    compare(cities.iter()?.rev(), model.iter().rev(), "reverse")?;
    let both = 2 * model.len() as u64;
    guide.say(&format!("all records in both directions: {}", rate(both, "records", start.elapsed())))
}

/// Compares two sequences record by record.
fn compare<'a>(
    found: impl Iterator<Item = cleavedb::Result<(Slice, Slice)>>,
    mut expected: impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>,
    direction: &str,
) -> Result<()> {
    for record in found {
        let (key, value) = record?;
        let same = expected.next().is_some_and(|(k, v)| key[..] == k[..] && value[..] == v[..]);
        check(same, || format!("the {direction} scan returned {} at the wrong position", escaped(&key)))?;
    }
    let missed = expected.next();
    check(missed.is_none(), || {
        format!("the {direction} scan ends before {}", escaped(missed.map_or(b"", |(key, _)| key)))
    })
}

fn names(records: Iter) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for record in records {
        names.push(name(&record?.0));
    }
    Ok(names)
}

/// The middle part of a key.
fn name(key: &[u8]) -> String {
    let key = String::from_utf8_lossy(key);
    key.split('/').nth(1).unwrap_or(&key).to_owned()
}

fn merge(db: &Db, model: &Model, guide: &mut Guide<'_>) -> Result<()> {
    guide.step("Merge: counters that are incremented without a read (u64-add)")?;
    let counters = |name| db.create_keyspace(name, KeyspaceOptions::new().merge_operator("u64-add"));
    let (countries, zones) = (counters("cities-per-country")?, counters("people-per-zone")?);
    let (mut country_totals, mut zone_totals) = (BTreeMap::new(), BTreeMap::new());
    let start = Instant::now();
    for (key, value) in model {
        let (country, zone, people) = fields(key, value)?;
        let mut batch = WriteBatch::new();
        batch.merge(&countries, &country, 1u64.to_le_bytes());
        batch.merge(&zones, &zone, people.to_le_bytes());
        db.write(batch)?;
        *country_totals.entry(country).or_insert(0) += 1;
        *zone_totals.entry(zone).or_insert(0) += people;
    }
    let took = start.elapsed();
    guide.say(&format!("{}, two in each batch", rate(2 * model.len() as u64, "merges", took)))?;
    show_counters(&countries, &country_totals, "cities by country", guide)?;
    show_counters(&zones, &zone_totals, "people by time zone", guide)
}

/// Country, time zone and population of a record.
fn fields(key: &[u8], value: &[u8]) -> Result<(String, String, u64)> {
    let (key, value) = (String::from_utf8_lossy(key), String::from_utf8_lossy(value));
    let parsed = (|| {
        let country = key.split('/').next()?;
        let mut fields = value.split(';').skip(2);
        let people = fields.next()?.parse().ok()?;
        Some((country.to_owned(), fields.next()?.to_owned(), people))
    })();
    parsed.ok_or_else(|| Failure::new(format!("the data set has an invalid record: {key} {value}")))
}

fn show_counters(
    counters: &Keyspace,
    totals: &BTreeMap<String, u64>,
    title: &str,
    guide: &mut Guide<'_>,
) -> Result<()> {
    let mut found: Vec<(String, u64)> = Vec::new();
    for record in counters.iter()? {
        let (key, value) = record?;
        let sum = value[..].try_into().map(u64::from_le_bytes);
        let sum =
            sum.map_err(|_| Failure::new(format!("the counter of {} has {} bytes", escaped(&key), value.len())))?;
        found.push((escaped(&key), sum));
    }
    check(found.iter().map(|(name, sum)| (name, sum)).eq(totals), || format!("the counters of {title} are wrong"))?;
    found.sort_by_key(|(_, sum)| std::cmp::Reverse(*sum));
    guide.say(&format!("{title}, the largest of {}:", found.len()))?;
    let largest = found.first().map_or(0, |(_, sum)| *sum);
    for (name, sum) in found.iter().take(5) {
        guide.say(&format!("  {name:<20} {:>13}  {}", HumanCount(*sum).to_string(), picture::bar(*sum, largest)))?;
    }
    Ok(())
}

fn snapshot(db: &Db, cities: &Keyspace, model: &Model, guide: &mut Guide<'_>) -> Result<()> {
    guide.step("Snapshot: a consistent view of one moment")?;
    let snapshot = db.snapshot();
    let mut batch = WriteBatch::new();
    let iceland: Vec<_> = model.range(b"IS/".to_vec()..b"IS0".to_vec()).collect();
    for (key, _) in &iceland {
        batch.delete(cities, key);
    }
    batch.put(cities, "IS/Atlantis/0", "0;0;0;Atlantic/Nowhere");
    db.write(batch)?;

    let now = names(cities.prefix("IS/")?)?;
    let then = names(snapshot.prefix(cities, "IS/")?)?;
    guide.say(&format!("after one batch that deletes Iceland's cities and adds one: {}", now.join(", ")))?;
    guide.say(&format!("the snapshot taken before it: {}", then.join(", ")))?;
    check(now == ["Atlantis"], || "the batch is not visible atomically".to_owned())?;
    check(snapshot.get(cities, "IS/Atlantis/0")?.is_none(), || "the snapshot sees a later put".to_owned())?;
    compare(snapshot.iter(cities)?, model.iter(), "snapshot's forward")?;
    compare(snapshot.iter(cities)?.rev(), model.iter().rev(), "snapshot's reverse")?;

    let mut batch = WriteBatch::new();
    batch.delete(cities, "IS/Atlantis/0");
    for (key, value) in iceland {
        batch.put(cities, key, value);
    }
    db.write(batch)?;
    compare(cities.iter()?, model.iter(), "forward")?;
    guide.say("the snapshot still shows every city unchanged; a second batch then reverted the first")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_with_an_extra_missing_or_changed_record_is_detected() {
        let model = Model::from([(b"a".to_vec(), b"1".to_vec()), (b"b".to_vec(), b"2".to_vec())]);
        let verdict = |records: &[(&str, &str)]| {
            let records = records
                .iter()
                .map(|(key, value)| (Slice::copy_from(key.as_bytes()), Slice::copy_from(value.as_bytes())));
            compare(records.map(Ok), model.iter(), "test").map_err(|failure| failure.to_string())
        };
        assert_eq!(verdict(&[("a", "1"), ("b", "2")]), Ok(()));
        assert!(verdict(&[("a", "1")]).unwrap_err().contains("ends before b"));
        assert!(verdict(&[("a", "1"), ("b", "3")]).unwrap_err().contains("returned b"));
        assert!(verdict(&[("a", "1"), ("b", "2"), ("c", "3")]).unwrap_err().contains("returned c"));
    }

    #[test]
    fn the_data_set_is_large_and_every_record_of_it_has_its_fields() {
        let mut keys = std::collections::BTreeSet::new();
        for line in CITIES.lines() {
            let (key, value) = jsonl::parse(line.as_bytes()).unwrap();
            fields(&key, &value).unwrap();
            keys.insert(key);
        }
        assert_eq!(keys.len(), 34_006);
    }
}
