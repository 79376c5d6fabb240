// The alignment of the tokens of two runs: the longest common subsequence.

const MOST = 1 << 23; // cells of the table

// Return, for each token of one sequence, the index of the same token in the other, or -1.
export function align(one, other) {
  const found = new Int32Array(one.length).fill(-1);
  let start = 0;
  while (start < one.length && start < other.length && one[start] === other[start]) found[start] = start++;
  let [end, otherEnd] = [one.length, other.length];
  while (end > start && otherEnd > start && one[end - 1] === other[otherEnd - 1]) found[--end] = --otherEnd;
  const [rows, columns] = [end - start, otherEnd - start];
  if (rows * columns === 0 || rows * columns > MOST) return found;
  const width = columns + 1;
  const longest = new Uint16Array((rows + 1) * width);
  for (let i = rows - 1; i >= 0; i--)
    for (let j = columns - 1; j >= 0; j--)
      longest[i * width + j] = one[start + i] === other[start + j] ? longest[(i + 1) * width + j + 1] + 1 : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
  for (let i = 0, j = 0; i < rows && j < columns; ) {
    if (one[start + i] === other[start + j]) found[start + i++] = start + j++;
    else if (longest[(i + 1) * width + j] >= longest[i * width + j + 1]) i++;
    else j++;
  }
  return found;
}

// For each index the aligned index, or that of the nearest aligned index before it.
export function nearest(alignment) {
  let last = 0;
  return Array.from(alignment, (index) => (last = index < 0 ? last : index));
}
