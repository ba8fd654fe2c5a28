// Exactly k of n, at random: the mathematics of the page, for browsers (`ksubset`) and for Node.
//
// Everything is a sum of positive terms over independent coins, tilted so that k heads are what
// they expect (see mathematics.md, section 2). Then linear space is enough: nothing that matters
// underflows. Tables are rebuilt for every item left out, O(n^3 k) in all: plenty for n <= 20.
"use strict";

// var: sites that swap pages without a reload run this script again
var ksubset = (() => {
  const sigmoid = (t) => 1 / (1 + Math.exp(-t));
  const sum = (values) => values.reduce((a, b) => a + b, 0);

  /** What is added to logits, and what comes out: coins whose expected number of heads is k. */
  function tilt(logits, k) {
    const free = logits.filter(Number.isFinite);
    const forced = logits.filter((x) => x === Infinity).length;
    const heads = k - forced; // to be chosen among the free
    const impossible = !(heads >= 0 && heads <= free.length) || logits.some(Number.isNaN);
    if (impossible) return { shift: NaN, tilted: logits.map(() => NaN) };
    if (heads === 0 || heads === free.length) {
      const rest = heads === 0 ? -Infinity : Infinity; // no choice left
      return { shift: 0, tilted: logits.map((x) => (Number.isFinite(x) ? rest : x)) };
    }
    const middle = Math.log(heads / (free.length - heads));
    let low = middle - Math.max(...free);
    let high = middle - Math.min(...free);
    // The shift need not be exact, only near: the formulas hold for every shift.
    for (let step = 0; step < 40; step++) {
      const shift = (low + high) / 2;
      if (sum(free.map((x) => sigmoid(x + shift))) < heads) low = shift;
      else high = shift;
    }
    const shift = (low + high) / 2;
    return { shift, tilted: logits.map((x) => x + shift) };
  }

  /** P(j heads) for j = 0..k after each coin: row i is about the first i coins. */
  function table(coins, k) {
    const rows = [new Array(k + 1).fill(0)];
    rows[0][0] = 1;
    for (const { p, q } of coins) {
      const before = rows[rows.length - 1];
      rows.push(before.map((x, j) => q * x + (j > 0 ? p * before[j - 1] : 0)));
    }
    return rows;
  }

  /** P(j heads) without one or two of the coins; 0 outside of 0..k. */
  function without(coins, k, one, other = one) {
    const heads = new Float64Array(k + 1);
    heads[0] = 1;
    coins.forEach(({ p, q }, i) => {
      if (i === one || i === other) return;
      for (let j = k; j > 0; j--) heads[j] = q * heads[j] + p * heads[j - 1];
      heads[0] *= q;
    });
    return (j) => heads[j] ?? 0;
  }

  /** The law of k-subsets: all its numbers, exactly. Impossible sizes give NaN. */
  function law(logits, k) {
    const n = logits.length;
    const { shift, tilted } = tilt(logits, k);
    const coins = tilted.map((t) => ({ p: sigmoid(t), q: sigmoid(-t) }));
    const prefix = table(coins, k);
    const mass = prefix[n][k]; // P(exactly k heads)

    const marginals = [];
    const complements = []; // 1 - marginals, with all digits where they are small
    for (let i = 0; i < n; i++) {
      const rest = without(coins, k, i);
      marginals.push((coins[i].p * rest(k - 1)) / mass);
      complements.push((coins[i].q * rest(k)) / mass);
    }

    const covariance = logits.map(() => new Array(n));
    for (let i = 0; i < n; i++) {
      covariance[i][i] = marginals[i] * complements[i];
      for (let j = 0; j < i; j++) {
        // P(both) P(neither) - P(only i) P(only j): never positive, as coin sums are log-concave
        const rest = without(coins, k, i, j);
        const scale = (coins[i].p * coins[i].q * coins[j].p * coins[j].q) / mass ** 2;
        const value = scale * (rest(k - 2) * rest(k) - rest(k - 1) ** 2);
        covariance[i][j] = value;
        covariance[j][i] = value;
      }
    }

    // Each coin's likelier side as the reference: terms are small, and none of them cancel.
    const likelier = tilted.map((t) => -Math.log1p(-sigmoid(-Math.abs(t))));
    const surprise = tilted.map((t, i) => {
      const rarer = t > 0 ? complements[i] : marginals[i];
      return likelier[i] + (rarer > 0 ? rarer * Math.abs(t) : 0);
    });
    const up = logits.filter((_, i) => tilted[i] > 0);
    return {
      n,
      k,
      marginals,
      covariance,
      entropy: Math.max(0, Math.log(mass) + sum(surprise)),
      logPartition: Math.log(mass) + sum(up) + sum(likelier) + shift * (up.length - k),

      /** log p of a subset, given as zeros and ones. */
      logProbability(z) {
        if (sum(z) !== k) return -Infinity;
        const logs = z.map((chosen, i) => Math.log(chosen ? coins[i].p : coins[i].q));
        return sum(logs) - Math.log(mass);
      },

      /** One exact draw, as zeros and ones: from the last item to the first, each by its
       * probability given how many are still to be chosen among it and those before it. */
      sample(uniform) {
        const z = new Array(n).fill(0);
        for (let i = n - 1, left = k; i >= 0; i--) {
          const taken = left > 0 ? coins[i].p * prefix[i][left - 1] : 0;
          const passed = coins[i].q * prefix[i][left];
          if (uniform() < taken / (taken + passed)) {
            z[i] = 1;
            left--;
          }
        }
        return z;
      },
    };
  }

  /** All subsets of size k as zeros and ones, in lexicographic order of their members. */
  function subsets(n, k) {
    if (k < 0 || k > n) return [];
    if (n === 0) return [[]];
    const starting = (first) => subsets(n - 1, k - first).map((z) => [first, ...z]);
    return [...starting(1), ...starting(0)];
  }

  /** The likeliest subsets: [{ z, probability }]. Ties, up to rounding, in lexicographic order. */
  function likeliest(distribution, count) {
    const rounded = (x) => Math.round(x * 1e10) / 1e10;
    return subsets(distribution.n, distribution.k)
      .map((z) => ({ z, log: distribution.logProbability(z) }))
      .filter(({ log }) => log > -Infinity)
      .sort((a, b) => rounded(b.log) - rounded(a.log))
      .slice(0, count)
      .map(({ z, log }) => ({ z, probability: Math.exp(log) }));
  }

  /** C(n, k). */
  function binomial(n, k) {
    let value = 1;
    for (let i = 1; i <= k; i++) value = (value * (n - k + i)) / i;
    return value;
  }

  /** k times the softmax: the guess that is not the answer, and may exceed 1. */
  function naive(logits, k) {
    const top = Math.max(...logits);
    const weights = logits.map((x) => Math.exp(x - top));
    return weights.map((w) => (k * w) / sum(weights));
  }

  /** Uniform numbers in [0, 1) with 53 bits: xoshiro128**, its state filled by a splitmix. */
  function generator(seed) {
    const state = [];
    for (let i = 1; i <= 4; i++) {
      let x = (seed + Math.imul(i, 0x9e3779b9)) | 0;
      x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
      x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
      state.push(x ^ (x >>> 16));
    }
    let [a, b, c, d] = state;
    const rotate = (x, by) => (x << by) | (x >>> (32 - by));
    function bits() {
      const result = Math.imul(rotate(Math.imul(b, 5), 7), 9);
      const shifted = b << 9;
      c ^= a;
      d ^= b;
      b ^= c;
      a ^= d;
      c ^= shifted;
      d = rotate(d, 11);
      return result >>> 0;
    }
    return () => ((bits() >>> 5) * 2 ** 26 + (bits() >>> 6)) / 2 ** 53;
  }

  return { law, subsets, likeliest, binomial, naive, generator };
})();

if (typeof module !== "undefined") module.exports = ksubset;
