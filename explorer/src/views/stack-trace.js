// The stack of one run of the automaton, from the records of its steps, and the numbers of a distribution over stacks.

export const [PUSH, REPLACE, POP] = [0, 1, 2];

// What lies on the stack after a step of the most probable run, top first: [{symbol, position}], position -1 for the
// bottom. A replacement changes the symbol and keeps the vector.
export function traceOf(bestRun, step) {
  const stack = [{ symbol: 0, position: -1 }];
  for (let t = 0; t <= step; t++) {
    const [action, , symbol] = bestRun.subarray(3 * t, 3 * t + 3);
    if (action === PUSH) stack.push({ symbol, position: t });
    else if (action === REPLACE) stack[stack.length - 1] = { ...stack[stack.length - 1], symbol };
    else if (stack.length > 1) stack.pop();
  }
  return stack.reverse();
}

// The n largest of a row, [{index, value}], without those below `least`.
export function largestOf(values, n, least = 0) {
  const found = [];
  values.forEach((value, index) => {
    if (value > least) found.push({ index, value });
  });
  return found.sort((one, other) => other.value - one.value || one.index - other.index).slice(0, n);
}

// The depths of the stack after a step, top first: {atLeast, symbols, positions}, subarrays of the contents.
export function cellsOf({ at_least, symbols, positions }, time, step) {
  const depths = at_least.length / time;
  const row = (array, depth) => {
    const width = array.length / (time * depths);
    return array.subarray((step * depths + depth) * width, (step * depths + depth + 1) * width);
  };
  return Array.from({ length: depths }, (_, depth) => ({
    depth: depth + 1,
    atLeast: at_least[step * depths + depth],
    symbols: symbols && row(symbols, depth),
    positions: row(positions, depth),
  }));
}
