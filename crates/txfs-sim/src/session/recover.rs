//! Recovers the images that crashes left and holds them against the history; some live on in sessions of their own.

use std::collections::HashMap;

use super::space::Space;
use super::{GENERATIONS_MAX, Runner, Session, Verdict};
use crate::generator::Generator;
use crate::hash::{derive_seed, mix};
use crate::images::{End, Image, ImageCollector};
use crate::verify;

impl Session {
    pub(super) fn verify_images(&mut self, runner: &mut Runner) -> Verdict {
        for image in self.collector.drain() {
            runner.report.images += 1;
            runner.report.states.insert(image.fingerprint);
            let key = mix(image.fingerprint, image.end as u64);
            match self.known.get(&key) {
                Some(digest) if self.history.find(*digest, image.oldest, self.history.newest()).is_some() => {
                }
                _ => self.verify_image(runner, key, &image)?,
            }
        }
        Ok(())
    }

    /// Recovers an image and holds it against the history; some images live on in a session of their own.
    fn verify_image(&mut self, runner: &mut Runner, key: u64, image: &Image) -> Verdict {
        let place = format!("{}action {}, {}, ", self.place, self.action, image.describe());
        let choice = derive_seed(image.seed, 5);
        let lives_on = self.generation < GENERATIONS_MAX && choice.is_multiple_of(24);
        // Power fails during the recovery itself, too.
        let per_step = u32::from(lives_on || choice.is_multiple_of(6));
        let collector = ImageCollector::watch(&image.disk, derive_seed(image.seed, 6), per_step);
        let volume = verify::open(&image.disk, runner.profile).map_err(|error| {
            runner.violation(place.clone(), format!("the recovered volume does not open: {error}"))
        })?;
        runner.report.recoveries += 1;
        let newest = self.history.newest();
        let index = verify::compare(&volume, &self.history, image.oldest, newest)
            .map_err(|what| runner.violation(place.clone(), what))?;
        verify::check(&image.disk, &volume).map_err(|what| runner.violation(place.clone(), what))?;
        self.known.insert(key, self.history.commits()[index].state_digest());
        // After a power cut, what is there is on stable storage. After a kill it may still be lost.
        let durable = if image.end == End::PowerCut { index } else { image.durable };
        if per_step == 0 {
            verify::kill(&image.disk, volume);
            return Ok(());
        }
        let mut session = Session {
            disk: image.disk.clone(),
            volume: Some(volume),
            collector,
            history: self.history.recovered(index, durable),
            generator: Generator::new(derive_seed(image.seed, 7), runner.profile),
            model_slots: vec![None; runner.profile.transactions_max],
            slots: (0..runner.profile.transactions_max).map(|_| None).collect(),
            savepoints: vec![Vec::new(); runner.profile.transactions_max],
            tolerant: false,
            faulted: None,
            space: Space::default(),
            log: Vec::new(),
            known: HashMap::new(),
            place,
            generation: self.generation + 1,
            action: 0,
        };
        if runner.options.trace {
            println!(
                "{:indent$}session: {}",
                "",
                session.place,
                indent = session.generation as usize * 2 - 2
            );
        }
        session.verify_recovery_images(runner)?;
        if lives_on {
            session.expect_at_least();
            session.run(runner, runner.profile.steps / 4)?;
            return session.finish(runner);
        }
        if let Some(volume) = session.volume.take() {
            verify::kill(&session.disk, volume);
        }
        Ok(())
    }

    /// The images taken while the volume was being recovered, before anybody knew what it would hold.
    fn verify_recovery_images(&mut self, runner: &mut Runner) -> Verdict {
        let durable = self.history.durable();
        for mut image in self.collector.drain() {
            image.oldest = durable;
            runner.report.images += 1;
            runner.report.states.insert(image.fingerprint);
            let place = format!("{}crash in recovery: {}", self.place, image.describe());
            let volume = verify::open(&image.disk, runner.profile).map_err(|error| {
                runner.violation(place.clone(), format!("the volume does not open after that: {error}"))
            })?;
            runner.report.recoveries += 1;
            verify::compare(&volume, &self.history, durable, self.history.newest())
                .map_err(|what| runner.violation(place.clone(), what))?;
            verify::check(&image.disk, &volume).map_err(|what| runner.violation(place.clone(), what))?;
            verify::kill(&image.disk, volume);
        }
        Ok(())
    }
}
