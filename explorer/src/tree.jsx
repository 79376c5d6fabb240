// A tree from left to right, laid out by d3-hierarchy. Nodes take the focus in turn: up and down to the neighbours in the
// order of the tree, left to the parent, right to the first child.
import { hierarchy, tree as tidyTree } from "d3-hierarchy";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

const LINE = 24;
const FONT = "12px system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif";

function measurer() {
  const context = document.createElement("canvas").getContext("2d");
  context.font = FONT;
  return (text) => context.measureText(text).width;
}

function neighbour(key, node, nodes) {
  const index = nodes.indexOf(node);
  if (key === "ArrowUp") return nodes[index - 1];
  if (key === "ArrowDown") return nodes[index + 1];
  if (key === "ArrowLeft") return node.parent;
  if (key === "ArrowRight") return node.children?.[0];
  if (key === "Home") return nodes[0];
  return key === "End" ? nodes[nodes.length - 1] : undefined;
}

// `root` is {children, ...}; label, note and description are functions of such data, emphasis says what is drawn strongly.
export function Tree({ root, name, label, note, description, emphasis, onSelect }) {
  const [current, setCurrent] = useState(null);
  const element = useRef(null);
  const { nodes, links, width, height, top } = useMemo(() => {
    const found = [];
    const measure = measurer();
    const tree = hierarchy(root).eachBefore((node) => {
      node.width = 18 + measure(`${label(node.data)} ${note(node.data)}`);
      found.push(node);
    });
    const columnWidth = found.reduce((widest, node) => Math.max(widest, node.width + 24), 150);
    const layout = tidyTree().nodeSize([LINE, columnWidth])(tree);
    let [low, high] = [0, 0];
    for (const { x } of found) [low, high] = [Math.min(low, x), Math.max(high, x)];
    return { nodes: found, links: layout.links(), width: (layout.height + 1) * columnWidth + 20, height: high - low + LINE + 8, top: low - LINE / 2 - 4 };
  }, [root]);
  const focused = nodes.includes(current) ? current : nodes[0];
  useLayoutEffect(() => { // the root is in the middle of a tree that may be higher than its box
    const { clientHeight } = element.current;
    element.current.scrollTo(0, nodes[0].x - top - clientHeight / 2);
  }, [nodes]);
  const onKeyDown = (event) => {
    const next = neighbour(event.key, focused, nodes);
    if (!next) return;
    event.preventDefault();
    setCurrent(next);
    element.current.querySelector(`[data-node="${nodes.indexOf(next)}"]`).focus();
    onSelect?.(next.data);
  };
  return (
    <div class="tree" ref={element}>
      <svg role="tree" aria-label={name} width={width} height={height} viewBox={`0 ${top} ${width} ${height}`} onKeyDown={onKeyDown}>
        {links.map(({ source, target }) => {
          const [x, y] = [source.y + source.width + 6, target.y + 4];
          return <path class={`link${emphasis(target.data) ? " strong" : ""}`} d={`M${x} ${source.x}C${(x + y) / 2} ${source.x} ${(x + y) / 2} ${target.x} ${y} ${target.x}`} />;
        })}
        {nodes.map((node, index) => (
          <g role="treeitem" aria-level={node.depth + 1} aria-label={description(node.data)} aria-selected={node === focused} data-node={index} tabindex={node === focused ? 0 : -1} class={emphasis(node.data) ? "node strong" : "node"} transform={`translate(${node.y + 8},${node.x})`}
            onClick={() => { setCurrent(node); onSelect?.(node.data); }}>
            <rect x="-6" y={-LINE / 2 + 2} width={node.width + 2} height={LINE - 4} rx="4" />
            <circle r="3.5" />
            <text x="9" y="4">
              {label(node.data)} <tspan class="note">{note(node.data)}</tspan>
            </text>
          </g>
        ))}
      </svg>
    </div>
  );
}
