//! Cycles in the graph: whether there are any, and the shortest ones.
//!
//! A search may leave out sorts of edges, and may forbid that two anti-dependencies follow each other: under snapshot
//! isolation every cycle has two that do (Fekete and others, *Making Snapshot Isolation Serializable*, 2005). For that
//! each node stands for two, entered by an anti-dependency or by anything else.

use std::collections::VecDeque;

use super::graph::{Dependency, Edge, Graph};

/// Which edges a search may use.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// `wr`.
    pub reads: bool,
    /// `rw` of items.
    pub anti: bool,
    /// `rw` by predicate.
    pub predicate: bool,
    /// Real time.
    pub real_time: bool,
    /// An anti-dependency may follow another one.
    pub adjacent: bool,
}

/// One step of a cycle.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Where it starts.
    pub from: usize,
    /// The edge.
    pub edge: Edge,
}

/// From so many nodes of a component its shortest cycle is looked for at most.
const STARTS_MAX: usize = 3000;

struct Walk<'a> {
    graph: &'a Graph,
    search: Search,
}

impl Walk<'_> {
    /// States: a node, and in the lowest bit that it was entered by an anti-dependency.
    fn len(&self) -> usize {
        self.graph.len() * 2
    }

    fn next(&self, state: usize, at: usize) -> Option<(usize, Edge)> {
        let edge = *self.graph.from(state / 2).get(at)?;
        Some((edge.to as usize * 2 + usize::from(!self.search.adjacent && edge.dependency.is_anti()), edge))
    }

    fn allows(&self, state: usize, edge: Edge) -> bool {
        match edge.dependency {
            Dependency::Write => true,
            Dependency::Read => self.search.reads,
            Dependency::Anti => self.search.anti && state.is_multiple_of(2),
            Dependency::AntiPredicate => self.search.predicate && state.is_multiple_of(2),
            Dependency::RealTime => self.search.real_time,
        }
    }

    /// Strongly connected components of more than one state (Tarjan's algorithm, without recursion).
    fn components(&self) -> Vec<Vec<usize>> {
        const UNSEEN: u32 = u32::MAX;
        let len = self.len();
        let (mut index, mut low) = (vec![UNSEEN; len], vec![0u32; len]);
        let mut on_stack = vec![false; len];
        let (mut stack, mut calls): (Vec<usize>, Vec<(usize, usize)>) = (Vec::new(), Vec::new());
        let (mut counter, mut found) = (0, Vec::new());
        // Every cycle has a state that was not entered by an anti-dependency.
        for root in (0..len).step_by(2) {
            if index[root] != UNSEEN {
                continue;
            }
            calls.push((root, 0));
            while let Some((state, at)) = calls.pop() {
                if at == 0 {
                    (index[state], low[state]) = (counter, counter);
                    counter += 1;
                    stack.push(state);
                    on_stack[state] = true;
                }
                let mut at = at;
                let mut descends = false;
                while let Some((next, edge)) = self.next(state, at) {
                    at += 1;
                    if !self.allows(state, edge) {
                        continue;
                    }
                    if index[next] == UNSEEN {
                        calls.push((state, at));
                        calls.push((next, 0));
                        descends = true;
                        break;
                    }
                    if on_stack[next] {
                        low[state] = low[state].min(index[next]);
                    }
                }
                if descends {
                    continue;
                }
                if let Some(&(caller, _)) = calls.last() {
                    low[caller] = low[caller].min(low[state]);
                }
                if low[state] == index[state] {
                    let at = stack.iter().rposition(|&other| other == state).unwrap_or(0);
                    let component = stack.split_off(at);
                    component.iter().for_each(|&state| on_stack[state] = false);
                    if component.len() > 1 {
                        found.push(component);
                    }
                }
            }
        }
        found
    }

    /// The shortest way from `start` back to it, of fewer than `limit` steps between transactions.
    fn shortest(
        &self,
        start: usize,
        member: &[bool],
        limit: usize,
        came: &mut [Option<(usize, Edge)>],
    ) -> Option<Vec<Step>> {
        let mut queue = VecDeque::from([(start, 0usize)]);
        let mut touched = Vec::new();
        let mut result = None;
        'search: while let Some((state, length)) = queue.pop_front() {
            if length >= limit {
                break;
            }
            let mut at = 0;
            while let Some((next, edge)) = self.next(state, at) {
                at += 1;
                if !self.allows(state, edge) || !member[next] {
                    continue;
                }
                if next == start {
                    let mut steps = vec![Step { from: state / 2, edge }];
                    let mut back = state;
                    while back != start {
                        let Some((before, edge)) = came[back] else { break };
                        steps.push(Step { from: before / 2, edge });
                        back = before;
                    }
                    steps.reverse();
                    result = Some(steps);
                    break 'search;
                }
                if came[next].is_none() {
                    came[next] = Some((state, edge));
                    touched.push(next);
                    queue.push_back((next, length + 1));
                }
            }
        }
        touched.into_iter().for_each(|state| came[state] = None);
        result
    }
}

/// True when there is a cycle.
pub fn is_cyclic(graph: &Graph, search: Search) -> bool {
    !Walk { graph, search }.components().is_empty()
}

/// A short cycle of each component, shortest first.
pub fn cycles(graph: &Graph, search: Search) -> Vec<Vec<Step>> {
    let walk = Walk { graph, search };
    let mut found = Vec::new();
    let mut member = vec![false; walk.len()];
    let mut came = vec![None; walk.len()];
    for component in walk.components() {
        component.iter().for_each(|&state| member[state] = true);
        let starts = component
            .iter()
            .copied()
            .filter(|state| state.is_multiple_of(2) && *state / 2 < graph.transactions);
        let mut best: Option<Vec<Step>> = None;
        for start in starts.take(STARTS_MAX) {
            let limit = best.as_ref().map_or(usize::MAX, |best| best.len() - 1);
            if limit < 2 {
                break;
            }
            if let Some(cycle) = walk.shortest(start, &member, limit, &mut came) {
                best = Some(cycle);
            }
        }
        found.extend(best);
        component.iter().for_each(|&state| member[state] = false);
    }
    found.sort_by_key(Vec::len);
    found
}
