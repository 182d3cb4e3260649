//! Reads the compact cases of this folder.
//!
//! ```text
//! case G01  One open gap, one request
//! because asking again for every frame behind the hole is a storm
//! with gap.grace=0
//!   0 ready 1 a E1 5 status=running data={"v":5}
//!   1 1< event a E1 7 #e7 {"v":7}
//!       > replay a from=6 to=6 times=1
//!       flag gap a from=6 to=6
//!       hold a 1
//! ```
//!
//! A numbered line is a step, the lines below it say what must be true of it. `1<` is a frame on
//! connection 1: its type, entity and epoch (`-` for none), then in any order its number (`7`, or
//! `3..7` for a range), `#id`, `!status`, data, and `name=value`; `re=KIND` answers a request.
//! Values are JSON, or bare words. Below a step:
//!
//! | line | meaning |
//! | --- | --- |
//! | `= a 7 #e7 {"v":7}` | this delivery, in order; also `snapshot`, `reset`, `maybe`, `to=NAME`; `a 6..9` is one each |
//! | `> replay a from=6` | this is sent; also `times=`, `delay=[min,max]`, `spread=[a,b]`, `each=entity`, `conn=` |
//! | `not > …`, `not = …`, `not flag …`, `not close` | nothing such |
//! | `flag NAME a` | this is reported or counted |
//! | `drop a 7 as=duplicate`, `hold a 2` | it is let go; so many are held |
//! | `is a sync=live seq=7`, `client connection=live` | the state after the step |
//! | `..9` at the end of a line | from here to step 9 |

use serde_json::{Map, Value, json};

use crate::runner::Case;

/// Reads all cases of one file; an error names the line.
pub fn read(text: &str) -> Result<Vec<Case>, String> {
    let mut cases: Vec<Case> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let read = read_line(&mut cases, line);
        read.map_err(|problem| format!("line {}: {problem}: {line}", index + 1))?;
    }
    Ok(cases)
}

fn read_line(cases: &mut Vec<Case>, line: &str) -> Result<(), String> {
    let trimmed = line.trim();
    if trimmed.is_empty() || trimmed.starts_with("//") || trimmed.starts_with("because ") {
        return Ok(());
    }
    if let Some(rest) = trimmed.strip_prefix("case ") {
        let id = rest.split_whitespace().next().ok_or("a case needs an id")?.to_owned();
        cases.push(Case { id, config: Map::new(), input: Vec::new(), expect: Vec::new() });
        return Ok(());
    }
    let case = cases.last_mut().ok_or("no case yet")?;
    let words = words(trimmed)?;
    if words.first().is_some_and(|word| word == "with") {
        case.config.extend(pairs(&words[1..])?);
        return Ok(());
    }
    if let Ok(number) = words[0].parse::<usize>() {
        if number != case.input.len() {
            return Err(format!("step {} comes next", case.input.len()));
        }
        case.input.push(step(&words[1..])?);
        return Ok(());
    }
    let at = case.input.len().checked_sub(1).ok_or("no step yet")?;
    let mut expect = expectation(&words)?;
    expect.insert("at".to_owned(), json!(at));
    case.expect.push(Value::Object(expect));
    Ok(())
}

/// Splits at blanks, except inside brackets and quotes.
fn words(line: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word) = (Vec::new(), String::new());
    let (mut depth, mut quoted, mut escaped) = (0usize, false, false);
    for letter in line.chars() {
        if quoted {
            word.push(letter);
            (quoted, escaped) = (escaped || letter != '"', !escaped && letter == '\\');
            continue;
        }
        match letter {
            ' ' if depth == 0 => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                continue;
            }
            '"' => quoted = true,
            '[' | '{' => depth += 1,
            ']' | '}' => depth = depth.checked_sub(1).ok_or("a bracket too many")?,
            _ => {}
        }
        word.push(letter);
    }
    if quoted || depth > 0 {
        return Err("a quote or bracket is open".to_owned());
    }
    if !word.is_empty() {
        words.push(word);
    }
    Ok(words)
}

/// JSON, or a bare word.
fn value(word: &str) -> Result<Value, String> {
    let json = word.starts_with(['[', '{', '"', '-'])
        || word.starts_with(|c: char| c.is_ascii_digit())
        || ["true", "false", "null"].contains(&word);
    if json && word != "-" {
        serde_json::from_str(word).map_err(|error| format!("{word}: {error}"))
    } else {
        Ok(json!(word))
    }
}

fn pair(word: &str) -> Result<Option<(String, Value)>, String> {
    match word.split_once('=') {
        Some((key, text)) if !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || "._".contains(c)) => {
            Ok(Some((key.to_owned(), value(text)?)))
        }
        _ => Ok(None),
    }
}

fn pairs(words: &[String]) -> Result<Map<String, Value>, String> {
    words.iter().map(|word| pair(word)?.ok_or(format!("{word}: name=value is expected"))).collect()
}

fn step(words: &[String]) -> Result<Value, String> {
    let verb = words.first().ok_or("an empty step")?;
    if verb.starts_with('{') {
        return serde_json::from_str(verb).map_err(|error| error.to_string());
    }
    let mut step = Map::new();
    let mut set = |key: &str, value: Value| step.insert(key.to_owned(), value);
    let word = |index: usize| words.get(index).map(String::as_str);
    let number = |index: usize| -> Result<Value, String> {
        let text = word(index).ok_or("a number is missing")?;
        text.parse::<u64>().map(|n| json!(n)).map_err(|_| format!("{text} is no number"))
    };
    if let Some(conn) = verb.strip_suffix('<') {
        set("op", json!("frame"));
        set("conn", json!(conn.parse::<u64>().map_err(|_| "no connection before <")?));
        step.extend(frame(&words[1..])?);
        return Ok(Value::Object(step));
    }
    set("op", json!(verb));
    match verb.as_str() {
        "open" if words.len() == 1 => {}
        "open" | "fail" => {
            set("conn", number(1)?);
        }
        "close" => {
            set("conn", number(1)?);
            set("code", number(2)?);
        }
        "raw" => {
            set("conn", number(1)?);
            match pair(word(2).unwrap_or(""))? {
                Some((key, value)) => set(&key, value),
                None => set("text", json!(words[2..].join(" "))),
            };
        }
        "burst" => {
            set("conn", number(1)?);
            set("entity", json!(word(2)));
            set("epoch", json!(word(3)));
            set("from", number(4)?);
            set("to", number(5)?);
            step.extend(pairs(&words[6..])?);
        }
        "ready" => {
            set("conn", number(1)?);
            set("entity", json!(word(2)));
            set("epoch", json!(word(3).filter(|epoch| *epoch != "-").unwrap_or("")));
            set("last", number(4)?);
            step.extend(pairs(&words[5..])?);
        }
        "ready_many" => {
            set("conn", number(1)?);
            set("count", number(2)?);
            set("last", number(3)?);
        }
        "advance" | "wake" => {
            set("ms", number(1)?);
            for flag in &words[2..] {
                set(flag, json!(true));
            }
        }
        "hidden" | "visible" | "online" | "offline" => {}
        "pongs" => {
            set("conn", number(1)?);
            set("on", json!(word(2) == Some("on")));
        }
        "token" => match word(1) {
            Some("refused") => {
                set("error", json!("refused"));
            }
            Some(token) => {
                set("value", json!(token));
            }
            None => return Err("token needs a value".to_owned()),
        },
        "app" => step.extend(call(&words[1..])?),
        "plan" => {
            let entity = word(1).ok_or("plan needs an entity")?;
            set("on", json!({"entity": entity, "seq": number(2)?}));
            let calls: Result<Vec<Value>, String> =
                words[3..].split(|word| word == ";").map(|words| call(words).map(Value::Object)).collect();
            set("do", json!(calls?));
        }
        other => return Err(format!("{other} is no step")),
    }
    Ok(Value::Object(step))
}

/// `CALL [entity] name=value …`
fn call(words: &[String]) -> Result<Map<String, Value>, String> {
    let mut call = Map::from_iter([("call".to_owned(), json!(words.first()))]);
    for word in &words[1..] {
        match pair(word)? {
            Some((key, value)) => call.insert(key, value),
            None => call.insert("entity".to_owned(), json!(word)),
        };
    }
    Ok(call)
}

fn frame(words: &[String]) -> Result<Map<String, Value>, String> {
    let mut frame = Map::new();
    let mut place = 0;
    for word in words {
        let mut set = |key: &str, value: Value| frame.insert(key.to_owned(), value);
        if let Some((key, value)) = pair(word)? {
            set(if key == "re" { "answers" } else { &key }, value);
            continue;
        }
        if place < 3 {
            if word != "-" {
                set(["type", "entity", "epoch"][place], json!(word));
            }
            place += 1;
            continue;
        }
        if let Some(id) = word.strip_prefix('#') {
            set("id", json!(id));
        } else if let Some(status) = word.strip_prefix('!') {
            set("status", json!(status));
        } else if let Some((first, seq)) = word.split_once("..") {
            set("first", value(first)?);
            set("seq", value(seq)?);
        } else if word.parse::<u64>().is_ok() {
            set("seq", value(word)?);
        } else if ["done", "binary"].contains(&word.as_str()) {
            set(word, json!(true));
        } else {
            set("data", value(word)?);
        }
    }
    Ok(frame)
}

fn expectation(words: &[String]) -> Result<Map<String, Value>, String> {
    let mut expect = Map::new();
    let mut words = words.to_vec();
    if let Some(until) = words.last().and_then(|word| word.strip_prefix("..")) {
        let until: u64 = until.parse().map_err(|_| "..STEP is expected")?;
        expect.insert("until".to_owned(), json!(until));
        words.pop();
    }
    let head = words.first().cloned().unwrap_or_default();
    let rest = words.get(1..).unwrap_or(&[]);
    match head.as_str() {
        "=" => {
            expect.insert("deliver".to_owned(), json!(delivery(rest)?));
        }
        ">" => {
            let mut send = send(rest)?;
            if let Some(times) = send.remove("times") {
                expect.insert("times".to_owned(), times);
            }
            expect.insert("send".to_owned(), json!(send));
        }
        "not" => {
            let never = match rest.first().map(String::as_str) {
                Some("=") => json!({"deliver": delivery(&rest[1..])?}),
                Some(">") => json!({"send": send(&rest[1..])?}),
                Some("close") => json!({"close": pairs(&rest[1..])?}),
                Some("flag") => json!({"flag": named(&rest[1..])?}),
                _ => return Err("not =, >, close or flag".to_owned()),
            };
            expect.insert("never".to_owned(), never);
        }
        "flag" => {
            expect.insert("flag".to_owned(), json!(named(rest)?));
        }
        "drop" => {
            expect.insert("drop".to_owned(), json!(delivery(rest)?));
        }
        "hold" => {
            let count = rest.get(1).and_then(|count| count.parse::<u64>().ok());
            let count = count.ok_or("hold needs an entity and a count")?;
            expect.insert("hold".to_owned(), json!({"entity": rest[0], "count": count}));
        }
        "is" => {
            let mut state = pairs(rest.get(1..).unwrap_or(&[]))?;
            state.insert("entity".to_owned(), json!(rest.first()));
            expect.insert("state".to_owned(), json!(state));
        }
        "client" => {
            expect.insert("state".to_owned(), json!(pairs(rest)?));
        }
        other => return Err(format!("{other} is no expectation")),
    }
    Ok(expect)
}

fn delivery(words: &[String]) -> Result<Map<String, Value>, String> {
    let mut deliver = Map::new();
    for (index, word) in words.iter().enumerate() {
        let mut set = |key: &str, value: Value| deliver.insert(key.to_owned(), value);
        if let Some((key, value)) = pair(word)? {
            set(&key, value);
        } else if index == 0 {
            set("entity", json!(word));
        } else if let Some(id) = word.strip_prefix('#') {
            set("id", json!(id));
        } else if let Some(status) = word.strip_prefix('!') {
            set("status", json!(status));
        } else if let Some((from, to)) = word.split_once("..") {
            set("from", value(from)?);
            set("to", value(to)?);
        } else if word.parse::<u64>().is_ok() {
            set("seq", value(word)?);
        } else {
            match word.as_str() {
                "snapshot" | "event" => set("kind", json!(word)),
                "reset" => set("reset", json!(true)),
                "maybe" => set("optional", json!(true)),
                _ => set("data", value(word)?),
            };
        }
    }
    Ok(deliver)
}

fn send(words: &[String]) -> Result<Map<String, Value>, String> {
    let mut send = Map::new();
    for (index, word) in words.iter().enumerate() {
        match pair(word)? {
            Some((key, value)) => send.insert(key, value),
            None if index == 0 && word == "any" => None,
            None if index == 0 => send.insert("type".to_owned(), json!(word)),
            None => send.insert("entity".to_owned(), json!(word)),
        };
    }
    Ok(send)
}

fn named(words: &[String]) -> Result<Map<String, Value>, String> {
    let mut flag = Map::new();
    for (index, word) in words.iter().enumerate() {
        match pair(word)? {
            Some((key, value)) => flag.insert(key, value),
            None if index == 0 => flag.insert("name".to_owned(), json!(word)),
            None => flag.insert("entity".to_owned(), json!(word)),
        };
    }
    Ok(flag)
}
