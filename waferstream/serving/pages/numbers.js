// Numbers as people read them.

const LENGTHS = [[1e12, "s"], [1e9, "ms"], [1e6, "us"], [1e3, "ns"], [1, "ps"]];

export const count = (number) => number.toLocaleString("en-US", { maximumFractionDigits: 0 });

const short = (number) => number.toLocaleString("en-US", { maximumSignificantDigits: 3 });

/** Tokens per second. */
export const rate = (perSecond) => (perSecond < 100 ? short(perSecond) : count(perSecond));

/** A time of so many picoseconds. */
export function time(ps) {
  const [unit, name] = LENGTHS.find(([least]) => ps >= least) ?? LENGTHS.at(-1);
  return `${short(ps / unit)} ${name}`;
}

export const share = (part, all) => `${(100 * part / (all || 1)).toFixed(1)}%`;

export const dollars = (amount) =>
  `$${amount.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 9 })}`;
