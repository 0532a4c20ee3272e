//! Questions, and the answers that come in on the standard input. Who reads the output does not matter for them: a script that
//! wants no question says so with `-n`.

use std::io::{self, IsTerminal, Write};

use super::Screen;
use crate::failure::Failure;
use crate::formats;

/// What scripts of BOSH see of an answer among the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Echo {
    Answer,
    Nothing,
}

impl Screen {
    /// What is typed as an answer; none if nobody may be asked, or nothing comes.
    pub(crate) fn ask(&mut self, question: &str) -> Option<String> {
        self.ask_for(question, Echo::Answer)
    }

    fn ask_for(&mut self, question: &str, echo: Echo) -> Option<String> {
        if !self.asks {
            return None;
        }
        self.put(&format!("{question}: "));
        self.answer(echo).filter(|answer| !answer.is_empty())
    }

    /// The same, and what is typed is not shown.
    pub(crate) fn ask_secretly(&mut self, question: &str) -> Option<String> {
        let shown = rustix::termios::tcgetattr(io::stdin()).ok();
        if let Some(mut hidden) = shown.clone() {
            hidden.local_modes.remove(rustix::termios::LocalModes::ECHO);
            let _ = rustix::termios::tcsetattr(io::stdin(), rustix::termios::OptionalActions::Now, &hidden);
        }
        let answer = self.ask_for(question, Echo::Nothing);
        if let Some(shown) = shown {
            let _ = rustix::termios::tcsetattr(io::stdin(), rustix::termios::OptionalActions::Now, &shown);
            self.print_question("\n");
        }
        answer
    }

    /// Lets somebody choose one of several.
    pub(crate) fn choice(&mut self, question: &str, options: &[String]) -> Result<usize, Failure> {
        if !self.asks {
            return Err(Failure::NobodyToAsk);
        }
        let listed: Vec<_> =
            options.iter().enumerate().map(|(index, option)| format!("{}: {option}", index + 1)).collect();
        self.put(&format!("{question}\n\n{}\n\n? ", listed.join("\n")));
        let answer = self.answer(Echo::Answer).ok_or(Failure::NobodyToAsk)?;
        let chosen = answer.trim().parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        chosen.filter(|index| *index < options.len()).ok_or(Failure::NoChoice)
    }

    /// Asks whether to go on, unless the user said that nothing is to be asked. No answer is no consent.
    pub(crate) fn confirm(&mut self) -> Result<(), Failure> {
        if !self.asks {
            return Ok(());
        }
        self.put("Continue? [yN]: ");
        match self.answer(Echo::Answer).as_deref().map(str::trim) {
            Some("y" | "Y" | "yes" | "Yes") => Ok(()),
            Some(_) => Err(Failure::Declined),
            None => Err(Failure::NoConsent),
        }
    }

    /// Asks something that is not done unless somebody wants it.
    pub(crate) fn agrees(&mut self, question: &str) -> bool {
        let answer = self.ask(&format!("{question} [yN]"));
        matches!(answer.as_deref().map(str::trim), Some("y" | "Y" | "yes" | "Yes"))
    }

    /// Puts a question: for people among the output, otherwise where it does not become a part of that. BOSH's client prints it among the
    /// output for everybody, with the answer.
    fn put(&mut self, question: &str) {
        if self.begun {
            self.print_question("\n");
        }
        self.print_question(&formats::plain(question));
    }

    fn print_question(&mut self, text: &str) {
        if self.is_for_people() || self.is_script_of_bosh() {
            return self.print(text);
        }
        let mut stderr = io::stderr().lock();
        // Nobody sees the question then, and so nobody answers it by mistake.
        let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }

    /// The next line of the standard input; none at its end.
    fn answer(&mut self, echo: Echo) -> Option<String> {
        let mut answer = String::new();
        let read = io::stdin().read_line(&mut answer).unwrap_or(0);
        let answer = answer.trim_end_matches(['\r', '\n']).to_owned();
        if self.is_script_of_bosh() && read > 0 {
            let shown = if echo == Echo::Answer { formats::plain(&answer) } else { String::new() };
            self.print_question(&format!("{shown}\n"));
        } else if !self.is_script_of_bosh() && !io::stdin().is_terminal() {
            // Nobody's typing ended the line.
            self.print_question("\n");
        }
        (read > 0).then_some(answer)
    }
}
